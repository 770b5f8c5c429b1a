// What exchanges lead to, exactly: compute and communication of whole batches of neighbours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "server/evaluate/placement_price.h"
#include "server/search/refine/comm_surrogate.h"
#include "server/search/refine/compute_memo.h"
#include "server/search/refine/exchange.h"
#include "server/search/refine/outlook.h"
#include "server/search/refine/shard_book.h"
#include "server/search/refine/solution.h"
#include "server/search/search_context.h"

namespace neuroshard {

class ExchangePricer {
 public:
  // All must outlive the pricer.
  ExchangePricer(SearchContext& context, ShardBook& book, ComputeMemo& memo);

  // Prices the solution itself.
  void PriceSolution(const Solution& solution);

  // From now on the work of all ranks together counts, too: much where all of them compute
  // as long as each other, hardly at all where some are nearly idle.
  void WeighWork();

  // What the last PriceSolution or Adopt found.
  const Outlook& outlook() const { return outlook_; }
  const CommSurrogate& surrogate() const { return surrogate_; }

  struct Priced {
    bool allowed = false;  // by memory and rules; otherwise the rest is void
    double cost_ms = 0;
    double potential_ms = 0;
  };
  // One result an exchange, in order.
  std::span<const Priced> Price(Solution& solution, const ExchangeList& list,
                                std::span<const Exchange> exchanges);

  // The outlook becomes that of the `index`-th exchange of the last Price; the caller carries it
  // out.
  void Adopt(std::size_t index);

  // The outlook becomes what compute is predicted to be after an exchange that is allowed, and what
  // communication is estimated to be; errors add up until the next PriceSolution. The caller
  // carries the exchange out.
  void Anticipate(const Solution& solution, const ExchangeList& list, const Exchange& exchange);
  // What PriceSolution, Adopt and Anticipate made of the ranks, to go back to.
  const std::vector<RankStanding>& standings() const { return standings_; }
  void SetStandings(const std::vector<RankStanding>& standings);

  // How many exchanges to price at once, so that a batch takes some milliseconds at most.
  std::size_t batch_size() const { return batch_size_; }

 private:
  // A rank that an exchange changes.
  struct Touched {
    int rank = 0;
    Solution::Rank changed;
    ComputeMemo::Slot slot = 0;
  };

  void FitSurrogate();
  void Collect(const Solution& solution, const ExchangeList& list, const Exchange& exchange);
  void Touch(const Solution& solution, const Unit& unit, int sign, std::size_t begin);
  void PriceTogether();
  void PriceSeparately();
  std::span<const Touched> touched(std::size_t trial) const {
    return std::span(touched_).subspan(touched_end_[trial],
                                       touched_end_[trial + 1] - touched_end_[trial]);
  }
  // How the ranks stand after a trial that is allowed.
  void StandingsAfter(std::size_t trial, std::vector<RankStanding>& standings) const;

  SearchContext& context_;
  ShardBook& book_;
  ComputeMemo& memo_;
  const bool separable_;
  const std::size_t num_ranks_;
  std::size_t batch_size_;

  CommSurrogate surrogate_;
  Outlook outlook_;
  Outlook::Weights weights_;
  std::vector<RankStanding> standings_;

  // Of one batch, kept for its memory.
  std::vector<ComputeMemo::Slot> slots_;  // by rank
  std::vector<Touched> touched_;
  std::vector<std::size_t> touched_end_;  // one more than trials
  std::vector<double> added_;             // [touched, width]: change of representation
  std::vector<int> touched_of_rank_;      // by rank, -1: not touched by the present trial
  std::vector<Priced> priced_;
  std::vector<std::size_t> row_of_trial_;  // in prices_; void where a trial is not allowed
  std::vector<float> compute_ms_;          // [rows, ranks], as the loads and prices_
  std::vector<float> forward_loads_;
  std::vector<float> backward_loads_;
  std::vector<ShardKinds> kinds_;  // of trials that are allowed
  PlacementPrices prices_;
  std::vector<RankStanding> trial_standings_;
};

}  // namespace neuroshard
