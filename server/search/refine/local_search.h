// Descent from a plan to a local optimum, and on from there after small random changes.
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
              ShardBook& book, ComputeMemo& memo, ExchangePricer& pricer, Solution& solution,
              int start);

  // Improves on the solution until nothing more is found, the request's steps are used up or the
  // context says stop. Hands what it finds to the context.
  Status Run();

 private:
  // To a local optimum; keeps the best solution met and hands it out.
  Status Descend();
  // Carries out the best exchange found, if any is better than nothing.
  bool Step();
  bool TakeBest();
  // Up to `depth_` exchanges by estimate, then priced as one. False: nothing was gained, and
  // everything is as before.
  bool Leap();
  // On from a local optimum by the best exchange there is, if it be worse, that brings nothing back
  // to where it has just been; until a number of steps has found nothing new.
  void Wander();
  bool WanderOn(int source);
  bool IsTabu(const Exchange& exchange) const;
  void CarryOut(const Exchange& exchange);
  void ForgetDone();
  void Undo();
  void ChooseSources();
  void Remember();
  void Restore();
  void Perturb();
  Status Publish();
  bool Exhausted() const { return steps_left_ <= 0; }

  SearchContext& context_;
  ShardBook& book_;
  ExchangePricer& pricer_;
  Solution& solution_;
  RankNeighbours rank_neighbours_;
  TableNeighbours table_neighbours_;
  ExchangeList list_;
  Random random_;
  std::int64_t steps_left_;
  const int start_;

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
  // Where a table may not come until some step of wandering.
  struct Tabu {
    int table = 0;
    int place = 0;
    int until = 0;
  };
  std::vector<Tabu> tabu_;
  int wandered_ = 0;
  std::vector<Exchange> open_;  // the best that are not tabu
  std::vector<RankStanding> before_;
  std::vector<RankStanding> anticipated_;
  std::size_t depth_ = 8;
  double estimate_error_ms_ = 0;  // mean over those priced lately
  double best_cost_ms_ = std::numeric_limits<double>::infinity();
  std::vector<Unit> best_;
  bool unpublished_ = false;
};

}  // namespace neuroshard
