// A batch of placements that differ from each other in a few shards, priced together.
#pragma once

#include <cstddef>
#include <span>
#include <unordered_map>
#include <vector>

#include "server/cost/cost_model.h"
#include "server/evaluate/placement_price.h"

namespace neuroshard {

// The head runs only on ranks that change, for all placements at once.
class PlacementBatch {
 public:
  // `model` must outlive the batch.
  explicit PlacementBatch(const BoundCostModel& model) : model_(model) {}

  // Begins a placement with what the ranks cost to compute and their loads, one of each a rank.
  void Begin(std::span<const float> compute_ms, std::span<const CommLoad> loads);

  // Adds a shard to the placement begun last. `held` is the rank's sum of phi in Begin's
  // placement, all zero for an empty rank.
  void Add(int rank, std::span<const float> held, std::span<const float> phi, const CommLoad& load);

  // In the order of Begin.
  void Price(PlacementPrices& prices);

 private:
  const BoundCostModel& model_;
  std::vector<float> compute_ms_;  // [placement, rank], like the loads
  std::vector<float> forward_;
  std::vector<float> backward_;
  std::vector<ShardKinds> kinds_;                     // by placement
  std::size_t begin_ = 0;                             // of the placement begun last
  std::vector<float> sums_;                           // [changed cells, width of phi]
  std::vector<std::size_t> cells_;                    // positions in compute_ms_
  std::unordered_map<int, std::size_t> row_of_rank_;  // in sums_, of the placement begun last
};

}  // namespace neuroshard
