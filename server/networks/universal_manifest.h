// The sections of model.yaml that a universal model has (README of this folder).
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/cost/interval_rule.h"
#include "server/cost/measured_casts.h"
#include "server/cost/measured_input_dist.h"

namespace neuroshard {

inline constexpr std::string_view kUniversalComputeKind = "universal_table_sum";
inline constexpr std::string_view kUniversalCommKind = "universal_comm";
// Of the layers of a communication network.
inline constexpr std::int64_t kMaxCommLayerWidth = 256;

// Number of members, the first ones, whose mean prices: most of the gain of the mean of all, at
// half of its time (server/networks/DECISIONS.md).
inline constexpr int kMaxPricingMembers = 2;

// kind universal_table_sum. Several members are one model: the mean of the first ones prices, and
// the differences between all of them give the intervals.
struct UniversalComputeManifest {
  std::string file;                        // safetensors, relative to the model's directory
  std::vector<std::string> features;       // of ComputeFeatureNames, each once
  std::int64_t cache_bytes = 0;            // of the device; 0: not known
  std::vector<std::int64_t> table_layers;  // phi: features to representation
  std::int64_t head_width = 0;
  std::vector<std::string> outputs = {"total_ms"};  // or {"forward_ms", "backward_ms"}
  int members = 1;
  std::optional<IntervalManifest> interval;

  int pricing_members() const { return std::min(members, kMaxPricingMembers); }
  bool operator==(const UniversalComputeManifest&) const = default;
};

// kind universal_comm.
struct UniversalCommManifest {
  std::string file;
  std::vector<std::string> features;  // exactly CommFeatureNames
  std::vector<std::int64_t> layers;   // 22 to 1
  int members = 1;
  std::optional<IntervalManifest> interval;           // of collectives that have none of their own
  std::map<std::string, IntervalManifest> intervals;  // by CollectiveName

  int pricing_members() const { return std::min(members, kMaxPricingMembers); }
  // Null where the model has no interval for a collective.
  const IntervalManifest* IntervalOf(const std::string& collective) const {
    const auto own = intervals.find(collective);
    if (own != intervals.end()) return &own->second;
    return interval ? &*interval : nullptr;
  }

  bool operator==(const UniversalCommManifest&) const = default;
};

// Section input_dist.
struct InputDistManifest {
  MeasuredInputDist measured;
  std::optional<IntervalManifest> interval;

  bool operator==(const InputDistManifest&) const = default;
};

// Conditions of the samples that a model was trained on. Zero or empty: not stated.
struct TrainedOnManifest {
  std::int64_t min_batch_size = 0;
  std::int64_t max_batch_size = 0;
  std::vector<std::string> weight_dtypes;
  std::vector<std::string> optimizers;
  std::vector<std::string> weighted;  // "true", "false"
  std::vector<std::string> pooling_modes;
  std::vector<std::string> compute_kernels;  // empty: "fused" alone
  int min_ranks = 0;
  int max_ranks = 0;
  int max_hosts = 0;
  std::vector<std::string> collectives;  // of CollectiveName

  bool operator==(const TrainedOnManifest&) const = default;
};

}  // namespace neuroshard
