// Input columns of NeuroShard's compute network: the features of a shard in order.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "server/cost/shard_features.h"

namespace neuroshard {

// Transform of a feature before it is normalized; kLog1p is ln(1 + x).
enum class FeatureTransform { kNone, kLog1p };

// Numbers of the features behind the bins 0..16 of the reuse histogram.
inline constexpr int kDimFeature = kReuseBins;                // the shard's columns
inline constexpr int kPoolingFactorFeature = kReuseBins + 1;  // mean ids per sample
inline constexpr int kRowFeature = kReuseBins + 2;            // the shard's rows
inline constexpr int kNumShardFeatures = kReuseBins + 3;

// Names of features: "bin_0" .. "bin_16", "dim", "pooling_factor", "row", by number.
std::string ShardFeatureName(int feature);
std::optional<int> ShardFeatureFromName(std::string_view name);

// Names of all features in the order of NeuroShard's release: sorted as text (bin_0, bin_1, bin_10,
// ..., bin_9, dim, pooling_factor, row).
std::vector<std::string> NeuroShardFeatureNames();

// The columns of one network. Training and serving share them. Immutable, so thread-safe.
class FeatureColumns {
 public:
  // Returns INVALID_ARGUMENT for no names, a name that is unknown or listed twice, and a transform
  // ("log1p") that is unknown or of a feature that is not listed.
  static StatusOr<FeatureColumns> Create(const std::vector<std::string>& names,
                                         const std::map<std::string, std::string>& transforms);

  int size() const { return static_cast<int>(columns_.size()); }

  // Fills `out`, which has size() entries.
  void Fill(const ShardFeatures& shard, std::span<double> out) const;

 private:
  struct Column {
    int feature = 0;
    FeatureTransform transform = FeatureTransform::kNone;
  };
  std::vector<Column> columns_;
};

}  // namespace neuroshard
