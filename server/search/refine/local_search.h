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
#include "server/search/refine/table_types.h"
#include "server/search/search_context.h"

namespace neuroshard {

class LocalSearch {
 public:
  // `context` must outlive the search.
  explicit LocalSearch(SearchContext& context);

  // Improves on the context's best plan until nothing more is found, the request's steps are used
  // up or the context says stop. Hands what it finds to the context.
  Status Run();

 private:
  // To a local optimum; keeps the best solution met.
  void Descend();
  // Carries out the best exchange found, if any is better than nothing.
  bool Step();
  void ChooseSources();
  void Remember();
  void Restore();
  void Perturb();
  Status Publish();
  bool Exhausted() const { return steps_left_ == 0; }

  SearchContext& context_;
  const TableTypes types_;
  ShardBook book_;
  ComputeMemo memo_;
  Solution solution_;
  ExchangePricer pricer_;
  RankNeighbours rank_neighbours_;
  ExchangeList list_;
  Random random_;
  std::int64_t steps_left_;

  std::vector<int> sources_;
  std::vector<int> order_;
  double best_cost_ms_ = std::numeric_limits<double>::infinity();
  std::vector<Unit> best_;
  bool unpublished_ = false;
};

}  // namespace neuroshard
