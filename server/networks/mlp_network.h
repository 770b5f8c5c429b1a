// Linear layers with ReLU in between, run on rows of plain floats, and what puts features into such
// rows.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "server/networks/dense_layer.h"
#include "server/networks/safetensors.h"

namespace neuroshard {

// z = (x - mean) / std, column by column. Immutable.
class Normalisation {
 public:
  // "feature_mean" and "feature_std" of a file that CheckNetworkTensors has passed.
  explicit Normalisation(const TensorFile& file)
      : mean_(file.tensors.at("feature_mean").values),
        deviation_(file.tensors.at("feature_std").values) {}

  std::size_t size() const { return mean_.size(); }

  // In double: rows reach 10^9, where floats are 64 apart.
  float Apply(std::size_t column, double value) const {
    return static_cast<float>((value - mean_[column]) / deviation_[column]);
  }

 private:
  std::vector<float> mean_;
  std::vector<float> deviation_;
};

// What the units between the layers do.
enum class HiddenUnits {
  kRelu,
  kHalves  // the first half of a layer (rounded up) is relu(x), the rest min(x, 0)
};

// The forward pass of every network. Immutable; Run from any thread. The bits of a row are the same
// on every CPU and in every batch (DenseLayer). A thread keeps what Run needs between layers
// (kBlockRows rows of the widest layers it has run) until it ends, so that calls ask for no memory.
class MlpNetwork {
 public:
  // Layers "<prefix>.0.weight" [out, in], "<prefix>.0.bias", ... of a file that CheckNetworkTensors
  // has passed; `widths` from input to output.
  MlpNetwork(const TensorFile& file, std::string_view prefix,
             const std::vector<std::int64_t>& widths, DenseActivation last,
             HiddenUnits hidden = HiddenUnits::kRelu);

  std::int64_t input_width() const { return input_width_; }
  std::int64_t output_width() const { return layers_.back().out(); }

  // in is [n, input_width()], out is [n, output_width()], row-major.
  void Run(std::int64_t n, std::span<const float> in, std::span<float> out) const {
    Run(n, in, input_width(), out);
  }
  // The same with a row of inputs every `in_stride` values.
  void Run(std::int64_t n, std::span<const float> in, std::int64_t in_stride,
           std::span<float> out) const;

 private:
  // Rows that run through the layers together: the hidden layers of a block stay in the cache.
  static constexpr std::int64_t kBlockRows = 128;

  void RunBlock(std::int64_t n, const float* in, std::int64_t in_stride, float* out) const;

  std::int64_t input_width_;
  HiddenUnits hidden_;
  std::int64_t widest_stride_ = 0;
  std::vector<DenseLayer> layers_;
};

}  // namespace neuroshard
