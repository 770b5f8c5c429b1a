// Placement prices: communication and total cost of many placements at once. The one place that
// adds up a plan's parts, shared by searches and PricePlan.
#pragma once

#include <span>
#include <vector>

#include "server/cost/cost_model.h"

namespace neuroshard {

// Row-major [placements, num_ranks], except `cost_ms`. Reused from batch to batch to keep its
// memory.
struct PlacementPrices {
  std::vector<float> backward_comm_ms;
  std::vector<float> start_offset_ms;
  std::vector<float> forward_comm_ms;
  std::vector<double>
      cost_ms;  // per placement: max over ranks of compute + backward + forward communication
};

// compute_ms and the loads (CommLoad summed by rank) are [placements, model.num_ranks()]; kinds are
// those of all shards of each placement, or empty where all have whole rows alone. start offset =
// compute + backward communication minus the minimum over the ranks of the placement.
void PricePlacements(const BoundCostModel& model, std::span<const float> compute_ms,
                     std::span<const float> forward_loads, std::span<const float> backward_loads,
                     PlacementPrices& prices, std::span<const ShardKinds> kinds = {});

}  // namespace neuroshard
