#include "server/cost/feature_columns.h"

#include <algorithm>
#include <cmath>

namespace neuroshard {
namespace {

double FeatureValue(const ShardFeatures& shard, int feature) {
  switch (feature) {
    case kDimFeature:
      return static_cast<double>(shard.cols);
    case kPoolingFactorFeature:
      return shard.pooling_factor;
    case kRowFeature:
      return static_cast<double>(shard.rows);
    default:
      return shard.reuse_histogram[static_cast<std::size_t>(feature)];
  }
}

}  // namespace

std::string ShardFeatureName(int feature) {
  switch (feature) {
    case kDimFeature:
      return "dim";
    case kPoolingFactorFeature:
      return "pooling_factor";
    case kRowFeature:
      return "row";
    default:
      return fmt::format("bin_{}", feature);
  }
}

std::optional<int> ShardFeatureFromName(std::string_view name) {
  for (int feature = 0; feature < kNumShardFeatures; ++feature) {
    if (ShardFeatureName(feature) == name) return feature;
  }
  return std::nullopt;
}

std::vector<std::string> NeuroShardFeatureNames() {
  std::vector<std::string> names;
  for (int feature = 0; feature < kNumShardFeatures; ++feature) {
    names.push_back(ShardFeatureName(feature));
  }
  std::ranges::sort(names);
  return names;
}

StatusOr<FeatureColumns> FeatureColumns::Create(
    const std::vector<std::string>& names, const std::map<std::string, std::string>& transforms) {
  FeatureColumns result;
  if (names.empty()) return InvalidArgument("no features are listed");
  for (const std::string& name : names) {
    const std::optional<int> feature = ShardFeatureFromName(name);
    if (!feature) return InvalidArgument("unknown feature '{}'", name);
    for (const Column& other : result.columns_) {
      if (other.feature == *feature) return InvalidArgument("feature '{}' is listed twice", name);
    }
    result.columns_.push_back({*feature, FeatureTransform::kNone});
  }
  for (const auto& [name, transform] : transforms) {
    const auto listed = std::ranges::find(names, name);
    if (listed == names.end()) {
      return InvalidArgument("transform of feature '{}', which is not listed", name);
    }
    if (transform != "log1p") {
      return InvalidArgument("unknown transform '{}' of feature '{}', must be log1p", transform,
                             name);
    }
    result.columns_[static_cast<std::size_t>(listed - names.begin())].transform =
        FeatureTransform::kLog1p;
  }
  return result;
}

void FeatureColumns::Fill(const ShardFeatures& shard, std::span<double> out) const {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const double value = FeatureValue(shard, columns_[i].feature);
    out[i] = columns_[i].transform == FeatureTransform::kLog1p ? std::log1p(value) : value;
  }
}

}  // namespace neuroshard
