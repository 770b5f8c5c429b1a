#include "server/networks/comm_network_member.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace neuroshard {
namespace {

constexpr double kMinLogMs = -20;
constexpr double kMaxLogMs = 12;

}  // namespace

CommNetworkMember::CommNetworkMember(const TensorFile& file, const std::string& prefix,
                                     const std::vector<std::int64_t>& layers)
    : normalisation_(file) {
  const auto values = [&](const std::string& name) -> const std::vector<float>& {
    return file.tensors.at(name).values;
  };
  for (std::size_t i = 0; i + 1 < layers.size(); ++i) {
    const std::string layer = fmt::format("{}.layer.{}", prefix, i);
    layers_.emplace_back(layers[i], layers[i + 1], values(layer + ".weight"),
                         values(layer + ".bias"), DenseActivation::kNone, i > 0);
  }
  const auto& wait_scale = values(prefix + ".wait_scale");
  const auto& floor_ms = values(prefix + ".floor_ms");
  std::copy(wait_scale.begin(), wait_scale.end(), wait_scale_.begin());
  std::copy(floor_ms.begin(), floor_ms.end(), floor_ms_.begin());
}

void CommNetworkMember::Costs(CollectiveKind kind, std::span<const CommFeatureRow> rows,
                              std::span<const double> wait_ms, std::span<double> cost_ms) const {
  // The layers' values, in turn.
  thread_local std::vector<float> x;
  thread_local std::vector<float> y;
  std::int64_t stride = kCommFeatures;
  x.resize(rows.size() * kCommFeatures);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t k = 0; k < kCommFeatures; ++k) {
      x[r * kCommFeatures + k] = normalisation_.Apply(k, rows[r][k]);
    }
  }
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const DenseLayer& layer = layers_[i];
    y.resize(rows.size() * static_cast<std::size_t>(layer.stride()));
    layer.Run(static_cast<std::int64_t>(rows.size()), x.data(), stride, y.data());
    stride = layer.stride();
    if (i + 1 < layers_.size()) {
      const std::size_t out = static_cast<std::size_t>(layer.out());
      const std::size_t rising = (out + 1) / 2;
      for (std::size_t r = 0; r < rows.size(); ++r) {
        float* values = y.data() + r * static_cast<std::size_t>(stride);
        for (std::size_t o = 0; o < rising; ++o) values[o] = std::max(values[o], 0.0F);
        for (std::size_t o = rising; o < out; ++o) values[o] = std::min(values[o], 0.0F);
      }
    }
    x.swap(y);
  }
  const std::size_t c = static_cast<std::size_t>(kind);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const double value = x[r * static_cast<std::size_t>(stride)];
    // NaN is the largest, as what overflows is.
    const double log_ms = value < kMinLogMs ? kMinLogMs : (value < kMaxLogMs ? value : kMaxLogMs);
    cost_ms[r] = wait_scale_[c] * wait_ms[r] + floor_ms_[c] + std::exp(log_ms);
  }
}

}  // namespace neuroshard
