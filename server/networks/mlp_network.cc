#include "server/networks/mlp_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <utility>

namespace neuroshard {
namespace {

// The layers' values, in turn.
thread_local std::vector<float> this_layer;
thread_local std::vector<float> next_layer;

// n rows of a layer of kHalves.
void HalveUnits(std::int64_t n, std::int64_t units, std::int64_t stride, float* rows) {
  const std::int64_t rising = (units + 1) / 2;
  for (float* row = rows; row < rows + n * stride; row += stride) {
    for (std::int64_t unit = 0; unit < rising; ++unit) row[unit] = std::max(row[unit], 0.0F);
    for (std::int64_t unit = rising; unit < units; ++unit) row[unit] = std::min(row[unit], 0.0F);
  }
}

}  // namespace

MlpNetwork::MlpNetwork(const TensorFile& file, std::string_view prefix,
                       const std::vector<std::int64_t>& widths, DenseActivation last,
                       HiddenUnits hidden)
    : input_width_(widths.front()), hidden_(hidden) {
  const DenseActivation between =
      hidden == HiddenUnits::kRelu ? DenseActivation::kRelu : DenseActivation::kNone;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    const auto values = [&](const char* name) -> const std::vector<float>& {
      return file.tensors.at(fmt::format("{}.{}.{}", prefix, i, name)).values;
    };
    layers_.emplace_back(widths[i], widths[i + 1], values("weight"), values("bias"),
                         i + 2 < widths.size() ? between : last, i > 0);
    widest_stride_ = std::max(widest_stride_, layers_.back().stride());
  }
}

void MlpNetwork::Run(std::int64_t n, std::span<const float> in, std::int64_t in_stride,
                     std::span<float> out) const {
  assert(n == 0 || static_cast<std::int64_t>(in.size()) >= (n - 1) * in_stride + input_width());
  assert(static_cast<std::int64_t>(out.size()) == n * output_width());
  const std::size_t needed = static_cast<std::size_t>(std::min(kBlockRows, n) * widest_stride_);
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
  const float* x = in;
  std::int64_t x_stride = in_stride;
  float* y = this_layer.data();
  float* spare = next_layer.data();
  for (const DenseLayer& layer : layers_) {
    layer.Run(n, x, x_stride, y);
    if (hidden_ == HiddenUnits::kHalves && &layer != &layers_.back()) {
      HalveUnits(n, layer.out(), layer.stride(), y);
    }
    x = y;
    x_stride = layer.stride();
    std::swap(y, spare);
  }
  for (std::int64_t row = 0; row < n; ++row) {
    std::copy_n(x + row * x_stride, output_width(), out + row * output_width());
  }
}

}  // namespace neuroshard
