// Where local search begins: a first legal plan at once, then constructions that trade work for
// evenness.
#pragma once

#include <vector>

#include "server/search/refine/construction.h"
#include "server/search/refine/exchange_pricer.h"
#include "server/search/refine/solution.h"
#include "server/search/search_context.h"

namespace neuroshard {

class Starts {
 public:
  // All must outlive it.
  Starts(SearchContext& context, const CompiledRules& rules, const TableLayouts& layouts,
         ShardBook& book, ExchangePricer& pricer);

  // Any legal solution, as quickly as it can be had. FAILED_PRECONDITION when there is none ("no
  // plan can exist") or none was found; OK without one when the context said stop.
  Status FindLegal(Solution& solution);

  // Of several constructions the one to begin at: in each, no shard may cost more than a limit, and
  // every table has the layout that takes the least work within it; limits from the costliest shard
  // down to a fraction of an even share. The cheapest of them is handed to the context; where it is
  // also where to begin, kCheapest. kNone: none is legal.
  enum class Found { kNone, kCheapest, kPromising };
  StatusOr<Found> FindCheap(Solution& solution);

 private:
  // Per table the layout with the least price and bytes_price_ms a byte, whose largest shard is
  // within the limit where that is possible.
  Construction::Choice Choose(const std::vector<std::vector<PricedLayout>>& layouts,
                              double limit_ms, double bytes_price_ms) const;
  std::vector<Construction::Choice> Choices(const Solution& solution);
  void GridStart(const std::vector<Construction::Choice>& choices, Solution& solution,
                 double& best_ms, std::vector<Unit>& best);
  // False: the context said stop.
  bool Load(const std::vector<Unit>& units, Solution& solution);
  bool Repair(const std::vector<std::vector<PricedLayout>>& layouts, Solution& solution);

  SearchContext& context_;
  const CompiledRules& rules_;
  const TableLayouts& layouts_;
  ShardBook& book_;
  ExchangePricer& pricer_;
  Construction construction_;
  std::vector<int> urgency_;  // by table
};

}  // namespace neuroshard
