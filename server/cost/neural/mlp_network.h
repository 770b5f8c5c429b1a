// Linear layers with ReLU, run on rows of plain floats. In between it computes in doubles: a BLAS
// sums in another order on another CPU and for another number of rows, a search takes thousands of
// decisions on the results, and only after rounding to floats are they the same everywhere.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "server/models/safetensors.h"

namespace neuroshard {

enum class LastLayer { kLinear, kRelu };

// Immutable; Run from any thread. A thread keeps what Run needs between layers (kBlockRows rows of
// the widest layers it has run) until it ends, so that calls ask for no memory.
class MlpNetwork {
 public:
  // Layers "<prefix>.0.weight" [out, in], "<prefix>.0.bias", ... of a file that CheckNetworkTensors
  // has passed; `widths` from input to output.
  MlpNetwork(const TensorFile& file, std::string_view prefix,
             const std::vector<std::int64_t>& widths, LastLayer last_layer);

  std::int64_t input_width() const { return widths_.front(); }
  std::int64_t output_width() const { return widths_.back(); }

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

  struct Layer {
    std::int64_t in = 0;
    std::int64_t out = 0;
    std::vector<double> weight;  // [in, out], transposed once, here; [out, in] of a narrow layer
    std::vector<double> bias;    // [out]

    // For so few columns OpenBLAS asks for memory in every call.
    bool narrow() const { return out < 8; }
  };

  static void Multiply(const Layer& layer, std::int64_t n, const double* x, double* y);
  void RunBlock(std::int64_t n, const float* in, std::int64_t in_stride, float* out) const;

  std::vector<std::int64_t> widths_;
  std::vector<Layer> layers_;
  LastLayer last_layer_;
};

}  // namespace neuroshard
