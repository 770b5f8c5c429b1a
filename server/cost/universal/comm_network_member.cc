#include "server/cost/universal/comm_network_member.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "server/models/universal_manifest.h"

namespace neuroshard {
namespace {

constexpr double kLeastLogMs = -20;
constexpr double kMostLogMs = 12;

}  // namespace

CommNetworkMember::CommNetworkMember(const TensorFile& file, const std::string& prefix,
                                     const std::vector<std::int64_t>& layers) {
  const auto values = [&](const std::string& name) -> const std::vector<float>& {
    return file.tensors.at(name).values;
  };
  for (std::size_t i = 0; i + 1 < layers.size(); ++i) {
    Layer& layer = layers_.emplace_back();
    layer.in = static_cast<std::size_t>(layers[i]);
    layer.out = static_cast<std::size_t>(layers[i + 1]);
    const auto& weight = values(fmt::format("{}.layer.{}.weight", prefix, i));
    const auto& bias = values(fmt::format("{}.layer.{}.bias", prefix, i));
    layer.bias.assign(bias.begin(), bias.end());
    layer.weight.resize(layer.in * layer.out);
    for (std::size_t o = 0; o < layer.out; ++o) {
      for (std::size_t k = 0; k < layer.in; ++k) {
        double w = weight[o * layer.in + k];
        if (i == 0) {
          w /= values("feature_std")[k];
          layer.bias[o] -= w * values("feature_mean")[k];
        }
        layer.weight[k * layer.out + o] = w;
      }
    }
  }
  const auto& wait_scale = values(prefix + ".wait_scale");
  const auto& floor_ms = values(prefix + ".floor_ms");
  std::copy(wait_scale.begin(), wait_scale.end(), wait_scale_.begin());
  std::copy(floor_ms.begin(), floor_ms.end(), floor_ms_.begin());
}

double CommNetworkMember::Cost(CollectiveKind kind, const CommFeatureRow& features,
                               double wait_ms) const {
  std::array<double, kMaxCommLayerWidth> values;
  std::array<double, kMaxCommLayerWidth> next;
  std::copy(features.begin(), features.end(), values.begin());
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    std::copy(layer.bias.begin(), layer.bias.end(), next.begin());
    for (std::size_t k = 0; k < layer.in; ++k) {
      const double x = values[k];
      if (x == 0) continue;  // offsets of ranks that start together, collectives that are not this
      const double* weight = layer.weight.data() + k * layer.out;
      for (std::size_t o = 0; o < layer.out; ++o) next[o] += x * weight[o];
    }
    if (i + 1 < layers_.size()) {
      const std::size_t half = (layer.out + 1) / 2;
      for (std::size_t o = 0; o < half; ++o) next[o] = std::max(next[o], 0.0);
      for (std::size_t o = half; o < layer.out; ++o) next[o] = std::min(next[o], 0.0);
    }
    std::swap_ranges(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(layer.out),
                     next.begin());
  }
  const std::size_t c = static_cast<std::size_t>(kind);
  // NaN is the largest, as what overflows is.
  const double log_ms =
      values[0] < kLeastLogMs ? kLeastLogMs : (values[0] < kMostLogMs ? values[0] : kMostLogMs);
  return wait_scale_[c] * wait_ms + floor_ms_[c] + std::exp(log_ms);
}

}  // namespace neuroshard
