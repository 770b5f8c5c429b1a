// Search context: what a strategy works with, when it is to stop, and where its plans go.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>

#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"
#include "server/search/core/job_runner.h"
#include "server/search/core/search_observer.h"
#include "server/search/core/search_result.h"
#include "server/search/placement/placement.h"

namespace neuroshard {

// What a search does, counted in items that take about as long wherever they occur.
enum class Work {
  kComputeCost,   // a rank's compute cost predicted
  kRankPrice,     // one rank's share of a placement's communication and cost
  kEstimate,      // a move estimated
  kRelayout,      // a block of a table's new layout placed for an estimate
  kGreedyChoice,  // a rank considered for a shard by greedy
  kConstruction,  // a rank considered for a unit of an initial solution
  kKinds          // their number
};

// What a part of a search looks at, and when it ends.
struct SearchStage {
  MemoryTier slowest = kWords<MemoryTier>.back().value;  // memory that tables may be in
  // Whether its plan is the answer. Then it goes on until the request's time budget is used up,
  // where there is one; otherwise it ends after the default amount of work, as if there were none.
  bool is_last = true;
};

// One search on one thread.
class SearchContext {
 public:
  // All must outlive the context; the model is bound to the request's conditions. `observer` may
  // be null.
  // `runner`: where the strategy's jobs run; null: one after the other.
  SearchContext(const PlanRequest& request, const BoundCostModel& model, const StopSignal& stop,
                SearchObserver* observer, const JobRunner* runner = nullptr);

  const PlanRequest& request() const { return request_; }
  const BoundCostModel& model() const { return model_; }
  const StopSignal& stop() const { return stop_; }
  SearchStatistics& statistics() { return statistics_; }

  // As JobRunner::Run. A job that needs a context makes one of its own.
  void RunJobs(int count, const std::function<void(int)>& job) const;

  // Polls the stop signal; once true, the strategy returns as soon as it can.
  bool ShouldStop();
  // Whether ShouldStop was ever true; does not poll.
  bool stopped() const { return stopped_; }

  // Counts work, as if it took the time that it takes on a server core of the 2020s. Unlike time,
  // it is the same in every run, so what it ends is reproducible.
  void AddWork(Work kind, std::size_t count) {
    work_ns_ += work_item_ns_[static_cast<std::size_t>(kind)] * static_cast<double>(count);
  }
  // Whether the stage has done the work that SearchOptions::effort gives it. Never where the request
  // says otherwise when to end (time budget, refine_steps). A search asks once it has a plan.
  bool WorkSpent() { return work_ns_ >= next_check_ns_ && !GoesOn(); }
  // The cost of the best plan known, also of one that is not handed out yet: by it WorkSpent judges
  // whether more work pays.
  void NoteCost(double ms) { known_cost_ms_ = std::min(known_cost_ms_, ms); }

  // Counts what a search inside this one did, or did beside it.
  void CountInside(const SearchContext& inner);
  void CountBeside(const SearchContext& other);
  // The whole search is one stage, unless its strategy begins others. Work goes on counting.
  void Begin(const SearchStage& stage);
  const SearchStage& stage() const { return stage_; }
  // Whether this stage ends when the time budget does.
  bool uses_time_budget() const {
    return stage_.is_last && request_.search.time_budget.has_value();
  }
  // Work done so far; a search beside another one starts with what that has done.
  double work_ns() const { return work_ns_; }
  void StartWithWork(double work_ns) { work_ns_ = work_ns; }

  // Takes a legal placement that is cheaper than all before (the strategy's comparison counts),
  // prices it as PricePlan does and tells the observer.
  Status Improve(const Placement& placement);
  Status Improve(Plan plan);
  // The same for a legal plan that may be no better: takes it only if its price is lower. Returns
  // whether it was.
  StatusOr<bool> ImproveIfCheaper(Plan plan);

  // What a plan is compared by: its cost plus the price of what it moves (Migration).
  double CostWithMigration(const Plan& plan, const PlanCost& cost) const;

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
  // At the end of the work given so far, and halfway there: whether there is more to do.
  bool GoesOn();

  const PlanRequest& request_;
  const BoundCostModel& model_;
  const StopSignal& stop_;
  SearchObserver* observer_;
  const JobRunner* runner_;
  SearchStatistics statistics_;
  std::optional<SearchResult> best_;
  std::array<double, static_cast<std::size_t>(Work::kKinds)> work_item_ns_{};
  double work_ns_ = 0;
  SearchStage stage_;
  // Work until the stage ends, and until GoesOn is to look at the cost; infinite where the request
  // says otherwise when to end.
  double end_ns_ = 0;
  double next_check_ns_ = 0;
  double known_cost_ms_ = std::numeric_limits<double>::infinity();
  double checked_cost_ms_ = std::numeric_limits<double>::infinity();  // at the last check
  double progress_ = 0;
  bool stopped_ = false;
};

}  // namespace neuroshard
