// The predicted cost of a plan, rank by rank, with its intervals; of many placements at once; and
// of shards, each alone on its rank.
#pragma once

#include <span>
#include <vector>

#include "common/base/status.h"
#include "common/domain/plan.h"
#include "common/domain/plan_cost.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// Row-major [placements, num_ranks], except `cost_ms`. Reused from batch to batch to keep its
// memory.
struct PlacementPrices {
  std::vector<float> backward_comm_ms;
  std::vector<float> start_offset_ms;
  std::vector<float> forward_comm_ms;
  // Per placement: max over ranks of compute + backward + forward communication.
  std::vector<double> cost_ms;
};

// Communication and total cost of placements: the one place that adds up a plan's parts, shared by
// searches and PricePlan. compute_ms and the loads (CommLoad summed by rank) are [placements,
// model.num_ranks()]; kinds are those of all shards of each placement, or empty where all have
// whole rows alone. start offset = compute + backward communication minus the minimum over the
// ranks of the placement.
void PricePlacements(const BoundCostModel& model, std::span<const float> compute_ms,
                     std::span<const float> forward_loads, std::span<const float> backward_loads,
                     PlacementPrices& prices, std::span<const ShardKinds> kinds = {});

// The same prices from what the ranks cost, [placements, model.num_ranks()], with compute_scale
// already in them. Each rank computes for `fixed_ms` more.
void PricePlacements(const BoundCostModel& model, std::span<const ShardSetCost> rank_costs,
                     float fixed_ms, PlacementPrices& prices);

// compute = head(sum of phi over the rank's shards, in plan order), 0 for a rank without shards;
// backward communication from the ranks' loads (CommLoad); start offset = compute + backward
// communication minus the minimum over ranks; forward communication from loads and start offsets
// (NeuroShard, sections 3.1 and 3.3). Memory is ShardMemory of the shards plus the rank's reserve.
//
// A plan that breaks rules of CheckPlan is priced all the same (too much memory, a missing table),
// unless it cannot be: unknown tables, shards outside their table, ranks that do not exist are
// INVALID_ARGUMENT with all violations. `model` is bound to the request's conditions.
StatusOr<PlanCost> PricePlan(const PlanRequest& request, const Plan& plan,
                             const BoundCostModel& model);

// `cost` is PricePlan of the plan under `model`; fills its intervals, and interval_coverage where
// there are any. The compute interval of a rank without shards is [0, 0]. Leaves everything as it
// is where ModelProperties::interval_coverage is 0. Errors as in PricePlan.
Status AddIntervals(const PlanRequest& request, const Plan& plan, const BoundCostModel& model,
                    PlanCost& cost);

// Compute and communication of each shard on a rank of its own, in ms; a plan costs sums of these
// under a model with additive_compute and separable_comm, and ranks of one kind (of several, kind 0
// is priced). Keeps its memory from batch to batch.
class ShardPricer {
 public:
  // `model` must outlive the pricer.
  explicit ShardPricer(const BoundCostModel& model) : model_(model) {}

  // Valid until the next call.
  std::span<const double> Price(std::span<const ShardFeatures> shards);

 private:
  const BoundCostModel& model_;
  std::vector<float> phi_;
  std::vector<CommLoad> loads_;
  std::vector<int> kinds_;
  std::vector<ComputeCost> compute_;
  std::vector<float> cells_;  // [placements, ranks]: loads of one direction, one shard a cell
  std::vector<float> start_offsets_ms_;
  std::vector<float> comm_ms_;
  std::vector<double> prices_;
};

}  // namespace neuroshard
