// Move estimator: what any move is about to lead to, without a prediction for it.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "server/search/core/shard_table.h"
#include "server/search/refine/objective/move_pricer.h"
#include "server/search/refine/objective/objective.h"
#include "server/search/refine/solution/solution.h"

namespace neuroshard {

// Takes a shard to change its rank's compute by its shard_cost_ms: right for models with additive
// compute, near for networks. Of takes time in the shards that move. For one thread; ShareOf for any
// number.
class MoveEstimator {
 public:
  // All must outlive it.
  MoveEstimator(const ShardTable& shard_table, const Solution& solution, const MovePricer& pricer)
      : shard_table_(shard_table), solution_(solution), pricer_(pricer) {}

  double Of(std::span<const int> removed, std::span<const Unit> added);

  // What a shard would add to the total of a rank, likewise.
  double ShareOf(int rank, int shard) const;

  // The tables that `takes` takes with the largest shares of a rank, `most` at most, into `tables`.
  void CostliestTables(int rank, std::size_t most, absl::FunctionRef<bool(int table)> takes,
                       std::vector<int>& tables);

 private:
  double ComputeOf(int rank, int shard) const;
  void Change(const Unit& unit, int sign);

  const ShardTable& shard_table_;
  const Solution& solution_;
  const MovePricer& pricer_;
  std::vector<RankChange> changes_;
  std::vector<int> change_of_rank_;  // -1 between calls
  std::vector<int> changed_ranks_;
  std::vector<std::pair<double, int>> by_share_;  // of one CostliestTables, kept for its memory
};

}  // namespace neuroshard
