#include "server/search/refine/objective/move_estimator.h"

#include <algorithm>
#include <cstddef>

namespace neuroshard {

double MoveEstimator::Of(std::span<const int> removed, std::span<const Unit> added) {
  changes_.clear();
  change_of_rank_.resize(static_cast<std::size_t>(solution_.num_ranks()), -1);
  for (const int id : removed) Change(solution_.unit(id), -1);
  for (const Unit& unit : added) Change(unit, 1);
  changed_ranks_.clear();
  for (const RankChange& change : changes_) {
    change_of_rank_[static_cast<std::size_t>(change.rank)] = -1;
    changed_ranks_.push_back(change.rank);
  }
  return pricer_.objective().Estimate(changes_, pricer_.objective().OthersThan(changed_ranks_),
                                      pricer_.surrogate());
}

double MoveEstimator::ShareOf(int rank, int shard) const {
  const CommSurrogate& c = pricer_.surrogate();
  const CommLoad& load = shard_table_.load(shard);
  return ComputeOf(rank, shard) + static_cast<double>(load.forward) * c.forward_own +
         static_cast<double>(load.backward) * c.backward_own;
}

void MoveEstimator::CostliestTables(int rank, std::size_t most,
                                    absl::FunctionRef<bool(int table)> takes,
                                    std::vector<int>& tables) {
  by_share_.clear();
  solution_.ForEachShardOn(rank, [&](int id, int shard) {
    by_share_.emplace_back(-ShareOf(rank, shard), solution_.unit(id).table);
  });
  std::sort(by_share_.begin(), by_share_.end());
  tables.clear();
  for (const auto& [share, table] : by_share_) {
    if (tables.size() == most) break;
    if (takes(table) && std::find(tables.begin(), tables.end(), table) == tables.end()) {
      tables.push_back(table);
    }
  }
}

double MoveEstimator::ComputeOf(int rank, int shard) const {
  return pricer_.compute_scale(rank) * static_cast<double>(shard_table_.shard_cost_ms(shard, rank));
}

void MoveEstimator::Change(const Unit& unit, int sign) {
  solution_.ForEachShard(unit, [&](int rank, int shard) {
    int& index = change_of_rank_[static_cast<std::size_t>(rank)];
    if (index < 0) {
      index = static_cast<int>(changes_.size());
      const RankPrice& now = pricer_.objective().rank(rank);
      changes_.push_back({rank, now.compute_ms, now.forward_load, now.backward_load});
    }
    RankChange& change = changes_[static_cast<std::size_t>(index)];
    change.compute_ms += sign * ComputeOf(rank, shard);
    change.forward_load += sign * static_cast<double>(shard_table_.load(shard).forward);
    change.backward_load += sign * static_cast<double>(shard_table_.load(shard).backward);
  });
}

}  // namespace neuroshard
