// Rank costs: what the ranks of a solution cost to compute, as they are and after changes.
#pragma once

#include "server/search/core/rank_cost_cache.h"
#include "server/search/core/search_context.h"
#include "server/search/core/shard_table.h"
#include "server/search/refine/solution/solution.h"

namespace neuroshard {

// The rank cost cache of a local search. Where a model's compute adds up (additive_compute), a cost
// is the sum of the shards' costs alone, and nothing is predicted or remembered. Find takes
// constant time for what is known and one pass over the representation for what is not. For one
// thread.
class RankCosts {
 public:
  using Slot = RankCostCache::Slot;

  // All must outlive it; the context's statistics count the predictions.
  RankCosts(SearchContext& context, const ShardTable& shard_table, const Solution& solution);

  // The slot of a rank of the solution without one of its shards and with another (none: -1).
  Slot Find(int rank, int without, int with);

  // The slot of any change: the rank as it will be, and what is added to its sum (representation,
  // `width` entries).
  Slot Find(int rank, const Solution::Rank& changed, const double* added);

  // Predicts what is queued, in one batch. Only then is cost_ms() known for it.
  void EvaluateQueued() { cache_.EvaluateQueued(); }

  // On this rank.
  float cost_ms(int rank, Slot slot) const {
    return cache_.cost_ms(slot) * model_.compute_scale(static_cast<std::size_t>(rank));
  }

  // Forgets everything once there is too much. Slots given out before are void then; call with
  // nothing queued.
  void TrimIfLarge();

 private:
  template <typename Fill>
  Slot FindOrQueue(int rank, const Solution::Rank& changed, const Fill& fill);

  const ShardTable& shard_table_;
  const Solution& solution_;
  const BoundCostModel& model_;
  const bool additive_;
  RankCostCache cache_;
};

}  // namespace neuroshard
