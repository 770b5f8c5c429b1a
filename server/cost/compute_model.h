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
  float total_ms = 0;    // with the distribution of ids, where that is exposed (input_dist.h)
  float forward_ms = 0;  // 0 unless ModelProperties::splits_compute
  float backward_ms = 0;

  ComputeCost operator*(float scale) const {
    return {total_ms * scale, forward_ms * scale, backward_ms * scale};
  }
};

// low <= cost <= high in each.
struct ComputeInterval {
  CostInterval total;
  std::optional<CostInterval> forward = {};  // as ModelProperties::splits_compute
  std::optional<CostInterval> backward = {};
};

// compute(rank) = head(sum over the rank's shards of phi(shard)), NeuroShard section 3. An empty
// rank costs 0 and is never passed here. A shard without rows, which some types' layouts have, is
// passed and may cost something. Immutable; all methods from any thread. Sizes are the caller's
// duty (checked by assertions); matrices are row-major.
class ComputeModel {
 public:
  virtual ~ComputeModel() = default;

  // Width of phi.
  virtual int representation_width() const = 0;

  // phi is [shards.size(), representation_width()].
  virtual void Represent(const PricingConditions& conditions, std::span<const ShardFeatures> shards,
                         std::span<float> phi) const = 0;

  // head: sums is [n, representation_width()], out has n entries. Costs are at least 0.
  virtual void Costs(std::span<const float> sums, std::span<ComputeCost> out) const = 0;

  // Intervals of the ranks' compute, each rank with its shards and their Costs; no rank is empty.
  // Not for the inner loop. Empty where the model has no intervals.
  virtual std::vector<ComputeInterval> Intervals(
      const PricingConditions& /*conditions*/,
      std::span<const std::vector<ShardFeatures>> /*shards_of_ranks*/,
      std::span<const ComputeCost> /*costs*/) const {
    return {};
  }
};

}  // namespace neuroshard
