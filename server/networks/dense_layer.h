// One linear layer, on a few rows of floats.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace neuroshard {

// Applied to each output of a layer.
enum class DenseActivation { kNone, kRelu };

// y = activation(x W^T + b). Every output is bias + x[0] w[0] + x[1] w[1] + ... in this order, by
// fused multiply-add; a narrow layer adds up 16 such sums over every 16th input instead. So the
// bits of a row depend neither on the vector width of the CPU nor on the other rows: searches take
// thousands of decisions on them, and replicas must take the same. A CPU without fused multiply-add
// gets there in software, slowly.
//
// Immutable; any thread. A row takes in x out multiply-adds.
class DenseLayer {
 public:
  // `weight` is [out, in], `bias` is [out], as PyTorch has them. `padded_input`: the rows of x are
  // padded with zeros to a multiple of 16, as Run pads those of y; a layer of few outputs is faster
  // then.
  DenseLayer(std::int64_t in, std::int64_t out, std::span<const float> weight,
             std::span<const float> bias, DenseActivation activation, bool padded_input);

  std::int64_t out() const { return out_; }
  // From one row of y to the next: at least out(); what is between is 0.
  std::int64_t stride() const { return stride_; }

  // x is [n, x_stride], y is [n, stride()]; they do not overlap.
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

// For tests: the instruction sets this is compiled for and this CPU has, as Highway numbers them.
std::vector<std::int64_t> DenseLayerInstructionSets();

}  // namespace neuroshard
