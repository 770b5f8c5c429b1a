// Iterated local search with restarts: descent to a local optimum, random changes of the best
// plan and descent again, and once that brings nothing a crossover of the best plans of several
// restarts, or another initial plan.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "common/base/random.h"
#include "server/search/core/search_context.h"
#include "server/search/refine/initial/initial_solutions.h"
#include "server/search/refine/moves/rank_moves.h"
#include "server/search/refine/moves/residency_moves.h"
#include "server/search/refine/moves/table_moves.h"
#include "server/search/refine/objective/move_pricer.h"
#include "server/search/refine/perturbation.h"
#include "server/search/refine/solution/move.h"
#include "server/search/refine/solution/solution.h"
#include "server/search/refine/workbench.h"

namespace neuroshard {

// One search from one solution. The solution stays legal while the search goes on, and is no answer
// when it ends: the context is handed every incumbent that is cheaper than all before, at the end
// of a descent and every 256 steps. The same request and start give the same plan unless a clock or
// a stop cuts. A step takes one neighbourhood of up to three ranks. For one thread.
class LocalSearch {
 public:
  // `bench` holds a complete solution that is priced, and must outlive the search. `start`: which
  // of several searches from there this is; they differ in their random numbers, and all but the
  // first begin with a random change.
  LocalSearch(Workbench& bench, int start);

  // Improves on the solution until the request's steps are used up, the context's work is spent or
  // it says stop; without a time budget also once nothing has been found for long. Hands what it
  // finds to the context.
  Status Run();

 private:
  // Iterated local search around the best solution since the last restart; descent alone where that
  // ends far above the best of all.
  Status Iterate();
  // Another solution to begin at, priced and the incumbent. False: there is none.
  bool Restart();
  // Keeps the incumbent among the elites if it is one of the best.
  void NoteElite();
  bool CrossElites();
  // To a local optimum; keeps the best solution met and hands it out.
  Status Descend();
  // Carries out the best move found, if any is better than nothing.
  bool Step();
  // Of the neighbourhood that collect(source) lists, rank by rank of the sources.
  template <typename Collect>
  bool Try(const Collect& collect);
  // Where tables may be in host memory.
  bool TryResidencies(ResidencyNeighbourhood neighbourhood);
  bool TakeBest();
  // The largest estimate at which a move is priced: what is estimated to be worse, by more than
  // estimates have been wrong lately, is not.
  double PricedUpToMs() const { return pricer_.objective().value_ms() + 2 * estimate_error_ms_; }
  void ChooseSources();
  void UpdateIncumbent();
  void RestartFromIncumbent();
  void Perturb();
  Status Publish();
  bool Ended() {
    return steps_left_ <= 0 || fruitless_rounds_ >= max_fruitless_rounds_ || context_.WorkSpent() ||
           context_.ShouldStop();
  }

  SearchContext& context_;
  MovePricer& pricer_;
  InitialSolutions& initial_;
  Solution& solution_;
  RankMoves rank_moves_;
  TableMoves table_moves_;
  Perturbation perturbation_;
  std::optional<ResidencyMoves> residency_moves_;
  MoveList list_;
  Random random_;
  std::int64_t steps_left_;
  // Rounds of perturbation and descent since one found a better plan than all before.
  std::int64_t fruitless_rounds_ = 0;
  const std::int64_t max_fruitless_rounds_;
  const int start_;

  std::vector<int> sources_;
  std::vector<int> order_;
  double estimate_error_ms_ = 0;  // mean over those priced lately
  // The incumbent: the best solution since the last restart.
  double best_cost_ms_ = std::numeric_limits<double>::infinity();
  std::vector<Unit> best_;
  std::vector<RankPrice> best_rank_prices_;
  // The incumbents of past restarts, the cheapest first, all of different costs.
  struct Elite {
    double cost_ms = 0;
    std::vector<Unit> units;
  };
  std::vector<Elite> elites_;
  double published_cost_ms_ = std::numeric_limits<double>::infinity();  // of all handed out
};

}  // namespace neuroshard
