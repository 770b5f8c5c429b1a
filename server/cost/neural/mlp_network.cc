#include "server/cost/neural/mlp_network.h"

#include <cblas.h>
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <utility>

namespace neuroshard {
namespace {

// The layers' values, in turn.
thread_local std::vector<double> this_layer;
thread_local std::vector<double> next_layer;

// Four sums side by side, which the compiler makes vectors of.
double Dot(const double* a, const double* b, std::int64_t n) {
  double sums[4] = {};
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (int lane = 0; lane < 4; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  for (; i < n; ++i) sums[0] += a[i] * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

}  // namespace

MlpNetwork::MlpNetwork(const TensorFile& file, std::string_view prefix,
                       const std::vector<std::int64_t>& widths, LastLayer last_layer)
    : widths_(widths), last_layer_(last_layer) {
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    const std::vector<float>& weight =
        file.tensors.at(fmt::format("{}.{}.weight", prefix, i)).values;
    const std::vector<float>& bias = file.tensors.at(fmt::format("{}.{}.bias", prefix, i)).values;
    Layer& layer = layers_.emplace_back(Layer{widths[i], widths[i + 1], {}, {}});
    layer.weight.assign(weight.begin(), weight.end());
    layer.bias.assign(bias.begin(), bias.end());
    if (layer.narrow()) continue;
    for (std::int64_t o = 0; o < layer.out; ++o) {
      for (std::int64_t k = 0; k < layer.in; ++k) {
        layer.weight[static_cast<std::size_t>(k * layer.out + o)] =
            weight[static_cast<std::size_t>(o * layer.in + k)];
      }
    }
  }
}

void MlpNetwork::Multiply(const Layer& layer, std::int64_t n, const double* x, double* y) {
  if (layer.narrow()) {
    for (std::int64_t row = 0; row < n; ++row) {
      for (std::int64_t o = 0; o < layer.out; ++o) {
        y[row * layer.out + o] =
            Dot(x + row * layer.in, layer.weight.data() + o * layer.in, layer.in);
      }
    }
    return;
  }
  const int in = static_cast<int>(layer.in);
  const int out = static_cast<int>(layer.out);
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<int>(n), out, in, 1.0, x, in,
              layer.weight.data(), out, 0.0, y, out);
}

void MlpNetwork::Run(std::int64_t n, std::span<const float> in, std::int64_t in_stride,
                     std::span<float> out) const {
  assert(n == 0 || static_cast<std::int64_t>(in.size()) >= (n - 1) * in_stride + input_width());
  assert(static_cast<std::int64_t>(out.size()) == n * output_width());
  const std::int64_t widest = *std::max_element(widths_.begin(), widths_.end());
  const std::size_t needed = static_cast<std::size_t>(std::min(kBlockRows, n) * widest);
  if (this_layer.size() < needed) {
    this_layer.resize(needed);
    next_layer.resize(needed);
  }
  for (std::int64_t row = 0; row < n; row += kBlockRows) {
    RunBlock(std::min(kBlockRows, n - row), in.data() + row * in_stride, in_stride,
             out.data() + row * output_width());
  }
}

void MlpNetwork::RunBlock(std::int64_t n, const float* in, std::int64_t in_stride,
                          float* out) const {
  double* x = this_layer.data();
  double* y = next_layer.data();
  for (std::int64_t row = 0; row < n; ++row) {
    for (std::int64_t i = 0; i < input_width(); ++i) {
      x[row * input_width() + i] = in[row * in_stride + i];
    }
  }
  for (const Layer& layer : layers_) {
    Multiply(layer, n, x, y);
    const double* const bias = layer.bias.data();
    const bool relu = &layer != &layers_.back() || last_layer_ == LastLayer::kRelu;
    for (std::int64_t row = 0; row < n; ++row) {
      double* const values = y + row * layer.out;
      if (relu) {
        // Not std::max(value, 0.0): a NaN stays one.
        for (std::int64_t i = 0; i < layer.out; ++i) {
          const double value = values[i] + bias[i];
          values[i] = value < 0 ? 0 : value;
        }
      } else {
        for (std::int64_t i = 0; i < layer.out; ++i) values[i] += bias[i];
      }
    }
    std::swap(x, y);
  }
  for (std::int64_t i = 0; i < n * output_width(); ++i) out[i] = static_cast<float>(x[i]);
}

}  // namespace neuroshard
