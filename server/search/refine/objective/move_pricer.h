// Move pricer: what moves lead to by the cost model, in batches, and about, without it.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "server/evaluate/price_plan.h"
#include "server/search/core/rank_cost_cache.h"
#include "server/search/core/search_context.h"
#include "server/search/core/shard_table.h"
#include "server/search/refine/objective/objective.h"
#include "server/search/refine/solution/move.h"
#include "server/search/refine/solution/solution.h"

namespace neuroshard {

// Prices a solution and batches of moves from it as PricePlan would price their plans, but for sums
// in doubles instead of floats. Holds the objective at the solution as it was priced last; whoever
// carries out a move tells with Adopt. A batch takes one call of each part of the cost model: the
// head for ranks that no earlier move left so, communication for all ranks of every move (for the
// changed ranks alone where it is separable). Costs of ranks are remembered; where a model's compute
// adds up (additive_compute), a cost is the sum of the shards' costs alone, and nothing is predicted
// or remembered. For one thread.
class MovePricer {
 public:
  using Slot = RankCostCache::Slot;

  // All must outlive the pricer; the context's statistics count the predictions.
  MovePricer(SearchContext& context, ShardTable& shard_table, Solution& solution);

  // The slot of the compute cost of a rank of the solution without one of its shards and with
  // another (none: -1). Takes constant time for what is known and one pass over the representation
  // for what is not.
  Slot FindCost(int rank, int without, int with);
  // The slot of any change: the rank as it will be, and what is added to its sum (representation,
  // `width` entries).
  Slot FindCost(int rank, const Solution::Rank& changed, const double* added);
  // Predicts what is queued, in one batch. Only then is compute_ms() known for it.
  void PredictCosts() { costs_.EvaluateQueued(); }
  // On this rank.
  float compute_ms(int rank, Slot slot) const {
    return costs_.cost_ms(slot) * context_.model().compute_scale(static_cast<std::size_t>(rank));
  }
  // Forgets all costs once there are too many. Slots given out before are void then; call with
  // nothing queued.
  void TrimCosts();

  // Prices the solution itself.
  void PriceSolution();

  // What a move is about to lead to, without a prediction for it: a shard is taken to change its
  // rank's compute by its shard_cost_ms, which is right for models with additive compute, near for
  // networks. Takes time in the shards that move.
  double Estimate(std::span<const int> removed, std::span<const Unit> added);
  // What a shard would add to the total of a rank, likewise.
  double ShareOf(int rank, int shard) const;
  // The tables that `takes` takes with the largest shares of a rank, `most` at most, into `tables`.
  void CostliestTables(int rank, std::size_t most, absl::FunctionRef<bool(int table)> takes,
                       std::vector<int>& tables);

  // From now on the work of all ranks together counts, too: much where all of them compute
  // as long as each other, hardly at all where some are nearly idle.
  void WeighWork();

  // What the last PriceSolution or Adopt found.
  const Objective& objective() const { return objective_; }
  const CommSurrogate& surrogate() const { return surrogate_; }

  struct Priced {
    bool allowed = false;  // by memory and rules; otherwise the rest is void
    double cost_ms = 0;
    double value_ms = 0;
    double moves_ms = 0;  // Solution::MovesMs, a part of both
  };
  // One result a move, in order.
  std::span<const Priced> Price(const MoveList& list, std::span<const Move> moves);

  // The objective becomes that of the `index`-th move of the last Price; the caller carries it
  // out.
  void Adopt(std::size_t index);

  // What PriceSolution and Adopt made of the ranks, to go back to (moves_ms: Solution::MovesMs).
  const std::vector<RankPrice>& rank_prices() const { return objective_.ranks(); }
  void SetRankPrices(const std::vector<RankPrice>& rank_prices, double moves_ms);

  // Whether a rank's communication depends on its own load alone.
  bool separable() const { return separable_; }
  // What the rank's compute is multiplied by.
  double compute_scale(int rank) const {
    return context_.model().compute_scale(static_cast<std::size_t>(rank));
  }

  // How many moves to price at once, so that a batch takes some milliseconds at most.
  std::size_t batch_size() const { return batch_size_; }
  // Moves to price in one call: one run of a network over all ranks prices them all, and hardly
  // takes longer for many; what is priced rank by rank is priced a few moves at a time.
  std::size_t priced_together() const { return prices_ranks_alone_ ? kPricedAlone : batch_size_; }

 private:
  static constexpr std::size_t kPricedAlone = 4;

  // A rank that a move changes.
  struct Touched {
    int rank = 0;
    Solution::Rank changed;
    Slot slot = 0;
  };

  template <typename Fill>
  Slot FindOrQueue(int rank, const Solution::Rank& changed, const Fill& fill);
  void FitSurrogate();
  double ComputeOf(int rank, int shard) const;
  // Changes changes_ by a unit.
  void CountChange(const Unit& unit, int sign);
  // Makes ready for `count` trials. The caller then says in priced_ which are allowed, and fills
  // touched_, sum_changes_, touched_end_ and kinds_.
  void BeginTrials(std::size_t count);
  // Prices the trials that are allowed.
  void PriceTrials();
  void Collect(std::span<const int> removed, std::span<const Unit> added);
  void Touch(const Unit& unit, int sign, std::size_t begin);
  void PriceTogether();
  void PriceSeparately();
  std::span<const Touched> touched(std::size_t trial) const {
    return std::span(touched_).subspan(touched_end_[trial],
                                       touched_end_[trial + 1] - touched_end_[trial]);
  }
  // Prices of the ranks after a trial that is allowed.
  void RankPricesAfter(std::size_t trial, std::vector<RankPrice>& rank_prices) const;

  SearchContext& context_;
  ShardTable& shard_table_;
  Solution& solution_;
  RankCostCache costs_;
  const bool separable_;
  const std::size_t num_ranks_;
  std::size_t batch_size_;
  const bool prices_ranks_alone_;

  CommSurrogate surrogate_;
  Objective objective_;
  Objective::Weights weights_;

  // Scratch of one batch, kept for its memory.
  std::vector<Touched> touched_;
  std::vector<std::size_t> touched_end_;  // one more than trials
  std::vector<double> sum_changes_;       // [touched, width]: change of representation
  std::vector<int> touched_of_rank_;      // by rank, -1: not touched by the present trial
  std::vector<Priced> priced_;
  std::vector<std::size_t> row_of_trial_;  // in prices_; void where a trial is not allowed
  std::vector<float> compute_ms_;          // [rows, ranks], as the loads and prices_
  std::vector<float> forward_loads_;
  std::vector<float> backward_loads_;
  std::vector<ShardKinds> kinds_;  // of trials that are allowed
  PlacementPrices prices_;
  std::vector<RankPrice> trial_prices_;

  // Scratch of one Estimate, kept for its memory.
  std::vector<RankChange> changes_;
  std::vector<int> change_of_rank_;  // -1 between calls
  std::vector<int> changed_ranks_;
  std::vector<std::pair<double, int>> by_share_;  // of one CostliestTables
};

}  // namespace neuroshard
