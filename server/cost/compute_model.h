// The compute half of a cost model: the fused lookup of what a rank holds.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "common/domain/plan_cost.h"
#include "server/cost/pricing_conditions.h"
#include "server/cost/shard_features.h"

namespace neuroshard {

// Time of a rank's fused lookup in one iteration, in ms.
struct ComputeCost {
  float total_ms = 0;    // includes the distribution of ids where that is exposed (input_dist.h)
  float forward_ms = 0;  // 0 unless ModelProperties::splits_compute
  float backward_ms = 0;

  ComputeCost operator*(float scale) const {
    return {total_ms * scale, forward_ms * scale, backward_ms * scale};
  }
};

// Intervals of a rank's compute: low <= cost <= high.
struct ComputeInterval {
  CostInterval total;
  std::optional<CostInterval> forward = {};  // present with ModelProperties::splits_compute
  std::optional<CostInterval> backward = {};
};

// The compute of a rank is head(sum over the rank's shards of phi(shard)), NeuroShard section 3.
// Ranks without shards cost 0 and are never passed here; shards without rows, which some types
// have, are passed and may cost something. Immutable, so thread-safe. Matrices are row-major;
// callers ensure the sizes of spans (assertions check them).
class ComputeModel {
 public:
  virtual ~ComputeModel() = default;

  // Width of phi.
  virtual int representation_width() const = 0;

  // Computes phi, [shards.size(), representation_width()].
  virtual void Represent(const PricingConditions& conditions, std::span<const ShardFeatures> shards,
                         std::span<float> phi) const = 0;

  // Computes head of `sums`, [n, representation_width()], into `out` of n entries. Costs are at
  // least 0.
  virtual void Costs(std::span<const float> sums, std::span<ComputeCost> out) const = 0;

  // Returns the intervals of ranks, each given by its shards (at least one) and their Costs; every
  // shard of `ranks` is on one of them. It is
  // too slow for the inner loop of a search. Empty where the model has no intervals.
  virtual std::vector<ComputeInterval> Intervals(const PricingConditions& /*conditions*/,
                                                 const ShardSets& /*ranks*/,
                                                 std::span<const ComputeCost> /*costs*/) const {
    return {};
  }
};

}  // namespace neuroshard
