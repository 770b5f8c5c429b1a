// What a strategy works with: its input, when to stop, and where its plans go.
#pragma once

#include <functional>
#include <optional>

#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"
#include "server/search/job_runner.h"
#include "server/search/placement/placement.h"
#include "server/search/search_observer.h"
#include "server/search/search_result.h"

namespace neuroshard {

// One search on one thread.
class SearchContext {
 public:
  // All must outlive the context; the model can price the request's number of ranks. `observer` may
  // be null.
  // `runner`: where the strategy's jobs run; null: one after the other.
  SearchContext(const PlanRequest& request, const CostModel& model, const StopSignal& stop,
                SearchObserver* observer, const JobRunner* runner = nullptr);

  const PlanRequest& request() const { return request_; }
  const CostModel& model() const { return model_; }
  const StopSignal& stop() const { return stop_; }
  SearchStatistics& statistics() { return statistics_; }

  // As JobRunner::Run. A job that needs a context makes one of its own.
  void RunJobs(int count, const std::function<void(int)>& job) const;

  // Polls the stop signal; once true, the strategy returns as soon as it can.
  bool ShouldStop();
  // Whether ShouldStop was ever true; does not poll.
  bool stopped() const { return stopped_; }

  // Takes a legal placement that is cheaper than all before (the strategy's comparison counts),
  // prices it as PricePlan does and tells the observer.
  Status Improve(const Placement& placement);
  Status Improve(Plan plan);
  // The same for a legal plan that may be no better: takes it only if its price is lower. Returns
  // whether it was.
  StatusOr<bool> ImproveIfCheaper(Plan plan);

  // What a plan is compared by: its cost plus the price of what it moves (Migration).
  double Objective(const Plan& plan, const PlanCost& cost) const;

  // Shares are clamped to [0, 1] and to what was reported before.
  void ReportProgress(double share);

  bool has_plan() const { return best_.has_value(); }
  // Of the last plan of Improve; has_plan().
  double best_cost_ms() const { return best_->cost.embedding_cost_ms; }
  const Plan& best_plan() const { return best_->plan; }

  // The answer after the strategy has returned `status`: the last plan of Improve, or why there is
  // none.
  StatusOr<SearchResult> Finish(const Status& status);

 private:
  Status Take(Plan plan, PlanCost cost);

  const PlanRequest& request_;
  const CostModel& model_;
  const StopSignal& stop_;
  SearchObserver* observer_;
  const JobRunner* runner_;
  SearchStatistics statistics_;
  std::optional<SearchResult> best_;
  double progress_ = 0;
  bool stopped_ = false;
};

}  // namespace neuroshard
