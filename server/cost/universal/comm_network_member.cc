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

void CommNetworkMember::Costs(CollectiveKind kind, std::span<const CommFeatureRow> rows,
                              std::span<const double> wait_ms, std::span<double> cost_ms) const {
  using Units = std::array<double, kMaxCommLayerWidth>;
  // What all ranks have in common goes through the first layer once.
  const Layer& first = layers_.front();
  Units common;
  std::copy(first.bias.begin(), first.bias.end(), common.begin());
  std::array<std::size_t, kCommFeatures> own;
  std::size_t num_own = 0;
  for (std::size_t k = 0; k < kCommFeatures; ++k) {
    const double x = rows.front()[k];
    const bool same =
        std::all_of(rows.begin(), rows.end(), [&](const auto& row) { return row[k] == x; });
    if (!same) {
      own[num_own++] = k;
    } else if (x != 0) {
      first.Add(k, x, common.data());
    }
  }
  const std::size_t c = static_cast<std::size_t>(kind);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    Units values;
    std::copy_n(common.begin(), first.out, values.begin());
    for (std::size_t i = 0; i < num_own; ++i) first.Add(own[i], rows[r][own[i]], values.data());
    for (std::size_t i = 1; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      Units next;
      std::copy(layer.bias.begin(), layer.bias.end(), next.begin());
      for (std::size_t k = 0; k < layer.in; ++k) {
        const bool keeps_positive = 2 * k < layer.in;
        const double x = keeps_positive ? std::max(values[k], 0.0) : std::min(values[k], 0.0);
        if (x != 0) layer.Add(k, x, next.data());
      }
      std::copy_n(next.begin(), layer.out, values.begin());
    }
    // NaN is the largest, as what overflows is.
    const double log_ms =
        values[0] < kLeastLogMs ? kLeastLogMs : (values[0] < kMostLogMs ? values[0] : kMostLogMs);
    cost_ms[r] = wait_scale_[c] * wait_ms[r] + floor_ms_[c] + std::exp(log_ms);
  }
}

}  // namespace neuroshard
