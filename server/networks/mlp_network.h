// Multilayer perceptrons on rows of floats, and the normalization of their inputs.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "server/networks/dense_layer.h"
#include "server/networks/safetensors.h"

namespace neuroshard {

// Computes z = (x - mean) / std by column. Immutable, so thread-safe.
class Normalisation {
 public:
  // Takes "feature_mean" and "feature_std" of a file that passed CheckNetworkTensors.
  explicit Normalisation(const TensorFile& file)
      : mean_(file.tensors.at("feature_mean").values),
        deviation_(file.tensors.at("feature_std").values) {}

  std::size_t size() const { return mean_.size(); }

  // Computes in double: numbers of rows reach 10^9, where floats are 64 apart.
  float Apply(std::size_t column, double value) const {
    return static_cast<float>((value - mean_[column]) / deviation_[column]);
  }

 private:
  std::vector<float> mean_;
  std::vector<float> deviation_;
};

// Units between the layers.
enum class HiddenUnits {
  kRelu,
  kHalves  // the first half of a layer (rounded up) is relu(x), the rest min(x, 0)
};

// The forward pass of every network. The bits of a row are the same on every CPU and in every batch
// (DenseLayer). Immutable; Run is thread-safe. Each thread keeps the buffers between layers
// (kBlockRows rows of the widest layers it has run) until it ends, so calls do not allocate.
class MlpNetwork {
 public:
  // Takes layers "<prefix>.0.weight" [out, in], "<prefix>.0.bias", ... of a file that passed
  // CheckNetworkTensors; `widths` go from input to output.
  MlpNetwork(const TensorFile& file, std::string_view prefix,
             const std::vector<std::int64_t>& widths, DenseActivation last,
             HiddenUnits hidden = HiddenUnits::kRelu);

  std::int64_t input_width() const { return input_width_; }
  std::int64_t output_width() const { return layers_.back().out(); }

  // Runs `in`, [n, input_width()], into `out`, [n, output_width()], both row-major.
  void Run(std::int64_t n, std::span<const float> in, std::span<float> out) const {
    Run(n, in, input_width(), out);
  }
  // Runs rows of inputs that are `in_stride` values apart.
  void Run(std::int64_t n, std::span<const float> in, std::int64_t in_stride,
           std::span<float> out) const;

 private:
  // Rows that go through the layers together, so that hidden layers stay in the cache.
  static constexpr std::int64_t kBlockRows = 128;

  void RunBlock(std::int64_t n, const float* in, std::int64_t in_stride, float* out) const;

  std::int64_t input_width_;
  HiddenUnits hidden_;
  std::int64_t widest_stride_ = 0;
  std::vector<DenseLayer> layers_;
};

}  // namespace neuroshard
