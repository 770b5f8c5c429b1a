#include "server/search/refine/refine_strategy.h"

#include <algorithm>

#include "server/search/baselines/greedy_baseline.h"
#include "server/search/neuroshard/neuroshard_strategy.h"
#include "server/search/refine/local_search.h"

namespace neuroshard {
namespace {

// Passes on what a strategy inside this one finds, where it is cheaper.
class Relay final : public SearchObserver {
 public:
  explicit Relay(SearchContext& context) : context_(context) {}

  void OnImprovement(const SearchResult& result) override {
    if (context_.has_plan() && result.cost.embedding_cost_ms >= context_.best_cost_ms()) return;
    if (status_.ok()) status_ = context_.ImproveIfCheaper(result.plan).status();
  }
  void OnProgress(double share) override { context_.ReportProgress(0.3 * share); }

  const Status& status() const { return status_; }

 private:
  SearchContext& context_;
  Status status_;
};

Status RunInside(const Strategy& strategy, SearchContext& context) {
  Relay relay(context);
  SearchContext inner(context.request(), context.model(), context.stop(), &relay);
  const Status status = strategy.Search(inner);
  context.statistics().plans_evaluated += inner.statistics().plans_evaluated;
  context.statistics().compute_evaluations += inner.statistics().compute_evaluations;
  NS_RETURN_IF_ERROR(relay.status());
  return status;
}

}  // namespace

Status RefineStrategy::Search(SearchContext& context) const {
  // Where its tables find no room, others do.
  for (const TableLoad load : {TableLoad::kSizeLookup, TableLoad::kLookup}) {
    const Status status = RunInside(GreedyBaseline(load), context);
    if (!status.ok() && !absl::IsFailedPrecondition(status)) return status;
  }
  if (context.ShouldStop()) return absl::OkStatus();
  NS_RETURN_IF_ERROR(RunInside(NeuroShardStrategy(), context));
  if (!context.has_plan() || context.ShouldStop()) return absl::OkStatus();
  return LocalSearch(context).Run();
}

}  // namespace neuroshard
