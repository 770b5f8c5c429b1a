// Initial solutions of local search: a first legal one at once, then constructions that trade work
// for evenness.
#pragma once

#include <vector>

#include "common/base/random.h"
#include "server/search/refine/initial/construction.h"
#include "server/search/refine/objective/move_pricer.h"
#include "server/search/refine/solution.h"
#include "server/search/search_context.h"

namespace neuroshard {

// Constructions for one request, with layouts that are priced once for all of them. Solutions it
// leaves are legal; FindCheap and Restart leave them priced by the pricer. FindLegal takes one
// construction where nothing is scarce, FindCheap up to 40, Restart 30. For one thread.
class InitialSolutions {
 public:
  // All must outlive it.
  InitialSolutions(SearchContext& context, const CompiledRules& rules, const TableLayouts& layouts,
                   ShardTable& shard_table, MovePricer& pricer);

  // Any legal solution, as quickly as it can be had. FAILED_PRECONDITION when there is none ("no
  // plan can exist") or none was found; OK without one when the context said stop.
  Status FindLegal(Solution& solution);

  // Of several constructions the one to begin at: in each, no shard may cost more than a limit, and
  // every table has the layout that takes the least work within it; limits from the costliest shard
  // down to a fraction of an even share. The cheapest of them is handed to the context; where it is
  // also where to begin, kCheapest. kNone: none is legal.
  enum class Found { kNone, kCheapest, kPromising };
  StatusOr<Found> FindCheap(Solution& solution);

  // Another solution to begin at: of some constructions with limits around the best cost known and
  // with prices that are off at random, the one that promises most. False: none is legal, or the
  // context says stop; the solution is void then.
  bool Restart(double best_cost_ms, Random& random, Solution& solution);

 private:
  using Layouts = std::vector<std::vector<PricedLayout>>;

  // Priced once; empty where the context says stop.
  const Layouts& AllLayouts();

  // Sets residencies_: all tables together take `fill` of the device memory, each rather with what
  // saves most time a byte.
  void ChooseResidencies(double fill);
  // Sets residencies_ to those of a complete solution.
  void TakeResidencies(const Solution& solution);
  // Per table the layout with the least price whose largest shard is within the limit where that is
  // possible. `noise`: makes every price a little larger; null: as they are.
  Construction::Choice Choose(const Layouts& layouts, double limit_ms, const Solution& solution,
                              Random* noise) const;
  std::vector<Construction::Choice> Choices(const Solution& solution);
  void GridStart(const std::vector<Construction::Choice>& choices, Solution& solution,
                 double& best_ms, std::vector<Unit>& best);
  // False: the context said stop.
  bool Load(const std::vector<Unit>& units, Solution& solution);
  bool Repair(const Layouts& layouts, Solution& solution);

  SearchContext& context_;
  const CompiledRules& rules_;
  const TableLayouts& layouts_;
  ShardTable& shard_table_;
  MovePricer& pricer_;
  Construction construction_;
  const std::vector<std::int64_t> available_bytes_;  // by rank
  std::vector<int> residencies_;  // by table: of all_layouts_, and of what is built next
  Layouts all_layouts_;
  std::vector<int> urgency_;  // by table
};

}  // namespace neuroshard
