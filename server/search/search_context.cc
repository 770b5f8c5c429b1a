#include "server/search/search_context.h"

#include <algorithm>
#include <utility>

#include "server/evaluate/price_plan.h"

namespace neuroshard {

SearchContext::SearchContext(const PlanRequest& request, const CostModel& model,
                             const StopSignal& stop, SearchObserver* observer)
    : request_(request), model_(model), stop_(stop), observer_(observer) {
  statistics_.strategy = request.search.strategy;
}

bool SearchContext::ShouldStop() {
  stopped_ = stopped_ || stop_.ShouldStop();
  return stopped_;
}

Status SearchContext::Improve(const Placement& placement) {
  SearchResult result;
  result.plan = BuildPlan(request_, placement);
  NS_ASSIGN_OR_RETURN(result.cost, PricePlan(request_, result.plan, model_));
  statistics_.splits = static_cast<int>(placement.pieces.size() - request_.tables.size());
  result.statistics = statistics_;
  best_ = std::move(result);
  if (observer_ != nullptr) observer_->OnImprovement(*best_);
  return absl::OkStatus();
}

void SearchContext::ReportProgress(double share) {
  progress_ = std::max(progress_, std::min(share, 1.0));
  if (observer_ != nullptr) observer_->OnProgress(progress_);
}

StatusOr<SearchResult> SearchContext::Finish(const Status& status) {
  NS_RETURN_IF_ERROR(status);
  if (!best_.has_value()) {
    if (stopped_) {
      return absl::DeadlineExceededError("the search was stopped before it had a first plan");
    }
    return Internal("strategy {} returned neither a plan nor a reason", statistics_.strategy);
  }
  statistics_.time_limit_reached = stopped_;
  best_->statistics = statistics_;
  if (!stopped_) ReportProgress(1.0);
  return *std::move(best_);
}

}  // namespace neuroshard
