// A linear layer on rows of floats.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace neuroshard {

// Activation of a layer's outputs.
enum class DenseActivation { kNone, kRelu };

// Computes y = activation(x W^T + b). Every output is bias + x[0] w[0] + x[1] w[1] + ... in this
// order, by fused multiply-add; a narrow layer adds 16 such sums over every 16th input instead. So
// the bits of a row depend neither on the CPU's vector width nor on the other rows: searches base
// thousands of decisions on them, and replicas must decide alike. A CPU without fused multiply-add
// emulates it slowly.
//
// Immutable, so thread-safe. A row takes in x out multiply-adds.
class DenseLayer {
 public:
  // `weight` is [out, in] and `bias` is [out], as in PyTorch. `padded_input`: the rows of x are
  // padded with zeros to a multiple of 16, as Run pads those of y, which makes layers of few
  // outputs faster.
  DenseLayer(std::int64_t in, std::int64_t out, std::span<const float> weight,
             std::span<const float> bias, DenseActivation activation, bool padded_input);

  std::int64_t out() const { return out_; }
  // Floats from one row of y to the next, at least out(); those after out() are 0.
  std::int64_t stride() const { return stride_; }

  // Runs the layer on `x`, [n, x_stride], into `y`, [n, stride()], which must not overlap `x`.
  void Run(std::int64_t n, const float* x, std::int64_t x_stride, float* y) const;

 private:
  std::int64_t in_;
  std::int64_t out_;
  std::int64_t stride_;
  bool narrow_;
  bool relu_;
  std::vector<float> weight_;  // [in, stride]; of a narrow layer [out, in padded]
  std::vector<float> bias_;    // [stride]
};

// Returns the instruction sets that this is compiled for and this CPU has, as Highway numbers them.
// For tests.
std::vector<std::int64_t> DenseLayerInstructionSets();

}  // namespace neuroshard
