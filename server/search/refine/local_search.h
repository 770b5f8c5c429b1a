// Iterated local search with restarts: descent to a local optimum, small random changes of the best
// plan and descent again, and another initial plan once that brings nothing.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "common/base/random.h"
#include "server/search/refine/compute_memo.h"
#include "server/search/refine/exchange.h"
#include "server/search/refine/exchange_pricer.h"
#include "server/search/refine/rank_neighbours.h"
#include "server/search/refine/shard_book.h"
#include "server/search/refine/solution.h"
#include "server/search/refine/starts.h"
#include "server/search/refine/table_layouts.h"
#include "server/search/refine/table_neighbours.h"
#include "server/search/search_context.h"

namespace neuroshard {

class LocalSearch {
 public:
  // All must outlive the search; `solution` is complete and priced by `pricer`. `start`: which of
  // several searches from there this is; they differ in their random numbers, and all but the first
  // begin with a random change.
  LocalSearch(SearchContext& context, const CompiledRules& rules, const TableLayouts& layouts,
              ShardBook& book, ComputeMemo& memo, ExchangePricer& pricer, Starts& starts,
              Solution& solution, int start);

  // Improves on the solution until the request's steps are used up, the context's work is spent or
  // it says stop; without a time budget also once nothing has been found for long. Hands what it
  // finds to the context.
  Status Run();

 private:
  // Iterated local search around the best solution since the last restart.
  Status Iterate();
  // To a local optimum; keeps the best solution met and hands it out.
  Status Descend();
  // Carries out the best exchange found, if any is better than nothing.
  bool Step();
  bool TryRanks(Reach reach);
  bool TryTables();
  bool TakeBest();
  // Up to `depth_` exchanges by estimate, then priced as one. False: nothing was gained, and
  // everything is as before.
  bool Leap();
  void CarryOut(const Exchange& exchange);
  void ForgetDone();
  void Undo();
  void ChooseSources();
  void UpdateIncumbent();
  void RestartFromIncumbent();
  void Perturb();
  Status Publish();
  bool Ended() {
    return steps_left_ <= 0 || fruitless_rounds_ >= most_fruitless_rounds_ ||
           context_.WorkSpent() || context_.ShouldStop();
  }

  SearchContext& context_;
  ExchangePricer& pricer_;
  Starts& starts_;
  Solution& solution_;
  RankNeighbours rank_neighbours_;
  TableNeighbours table_neighbours_;
  ExchangeList list_;
  Random random_;
  std::int64_t steps_left_;
  // Rounds of perturbation and descent since one found a better plan than all before.
  std::int64_t fruitless_rounds_ = 0;
  const std::int64_t most_fruitless_rounds_;
  const int start_;
  bool far_first_ = false;  // the last step found its exchange far

  std::vector<int> sources_;
  std::vector<int> order_;
  // What was carried out by the present leap, newest last.
  struct Done {
    std::size_t left_end = 0;  // in left_
    std::size_t came_end = 0;  // in came_
  };
  std::vector<Done> done_;
  std::vector<Unit> left_;
  std::vector<int> came_;
  std::vector<RankStanding> before_;
  std::vector<RankStanding> anticipated_;
  std::size_t depth_ = 8;
  double estimate_error_ms_ = 0;  // mean over those priced lately
  // The incumbent: the best solution since the last restart.
  double best_cost_ms_ = std::numeric_limits<double>::infinity();
  std::vector<Unit> best_;
  double published_cost_ms_ = std::numeric_limits<double>::infinity();  // of all handed out
};

}  // namespace neuroshard
