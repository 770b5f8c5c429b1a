// Prices of shards, each alone on its rank.
#pragma once

#include <span>
#include <vector>

#include "server/cost/cost_model.h"

namespace neuroshard {

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
