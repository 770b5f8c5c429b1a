// Perturbations: large random changes of a solution, from which local search descends again.
#pragma once

#include <span>
#include <vector>

#include "common/base/random.h"
#include "server/search/core/search_context.h"
#include "server/search/refine/moves/table_placer.h"
#include "server/search/refine/objective/move_pricer.h"
#include "server/search/refine/solution/solution.h"

namespace neuroshard {

// Changes the solution of a workbench with no regard to costs, or hardly any, and leaves it legal
// but not priced. What is random follows the `Random` that is given. Takes time in the units that
// move x the ranks that they may go to. For one thread.
class Perturbation : MoveTools {
 public:
  // `bench` must outlive it, and holds a complete solution that is priced.
  explicit Perturbation(Workbench& bench);

  // Two to six units go to other ranks, or tables get other layouts.
  void MoveAtRandom(Random& random);
  // Lays some table out in some way, at the ranks or hosts with the lowest totals. False: nothing
  // changed, since the table stays in place, or there is no room, or a rule forbids it.
  bool RandomRelayout(Random& random);

  // Ruin and recreate (Schrimpf et al., 2000): all units that lie on `rank` alone, or on one or two
  // others that are drawn, are taken away and put back, costliest first but for some noise, each
  // on the rank with the lowest total. False: one found no place, and the solution is incomplete.
  bool RuinRanks(int rank, Random& random);

  // Crossover of two solutions: the tables of `first`, but for some, drawn, that are cut as in
  // `second` and go to the ranks with the lowest totals. False: one found no place, and the solution is
  // incomplete.
  bool Cross(std::span<const Unit> first, std::span<const Unit> second, Random& random);

 private:
  // A unit without a rank.
  struct Unplaced {
    Unit unit;
    double share_ms = 0;  // of a rank's total
    double order_ms = 0;  // the largest is placed first
  };

  void AddUnplaced(const Unit& unit, double noise);
  // Places unplaced_ on the ranks. False: one has room on none.
  bool Place(std::span<const int> ranks);

  TablePlacer placer_;

  // Scratch of one call, kept for its memory.
  std::vector<Unplaced> unplaced_;
  std::vector<int> removed_;
  std::vector<int> ranks_;
  std::vector<double> total_ms_;  // by rank
  std::vector<bool> from_second_;
};

}  // namespace neuroshard
