// Search context: the inputs of a strategy, its stop conditions, and the receiver of its plans.
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

// Kinds of work, counted in items that take about the same time wherever they occur.
enum class Work {
  kComputeCost,   // a rank's compute cost predicted
  kRankCost,      // a rank's compute cost looked for among those predicted
  kRankPrice,     // one rank's share of a placement's communication and cost
  kEstimate,      // a move estimated
  kRelayout,      // a block of a table's new layout placed for an estimate
  kGreedyChoice,  // a rank considered for a shard by greedy
  kConstruction,  // a rank considered for a unit of an initial solution
  kKinds          // their number
};

// A part of a search: the memories that it considers, and when it ends.
struct SearchStage {
  MemoryTier slowest = kWords<MemoryTier>.back().value;  // slowest memory that tables may be in
  // Its plan is the answer. The last stage goes on until the request's time budget is used up,
  // where there is one; other stages end after the work of the effort, as if there were no
  // budget.
  bool is_last = true;
};

// One search. For one thread; jobs on others get contexts of their own.
class SearchContext {
 public:
  // All arguments must outlive the context; the model is bound to the request's conditions.
  // `observer` may be null. `runner` runs the strategy's jobs; null: one after the other.
  SearchContext(const PlanRequest& request, const BoundCostModel& model, const StopSignal& stop,
                SearchObserver* observer, const JobRunner* runner = nullptr);

  const PlanRequest& request() const { return request_; }
  const BoundCostModel& model() const { return model_; }
  const StopSignal& stop() const { return stop_; }
  SearchStatistics& statistics() { return statistics_; }

  // JobRunner::Run. A job that needs a context makes one of its own.
  void RunJobs(int count, const std::function<void(int)>& job) const;

  // Polls the stop signal. Once it is true, the strategy must return as soon as it can.
  bool ShouldStop();
  // Returns whether ShouldStop was ever true, without polling.
  bool stopped() const { return stopped_; }

  // Counts work in the time that it takes on a server core of the 2020s. Unlike time, it is the
  // same in every run, so that ending by it is reproducible.
  void AddWork(Work kind, std::size_t count) {
    work_ns_ += work_item_ns_[static_cast<std::size_t>(kind)] * static_cast<double>(count);
  }
  // Whether the stage has done the work that SearchOptions::effort gives it. Never where the request
  // says otherwise when to end (time budget, refine_steps). A search asks once it has a plan.
  bool WorkSpent() { return work_ns_ >= next_check_ns_ && !GoesOn(); }
  // The cost of the best plan known, also of one that is not handed out yet: by it WorkSpent judges
  // whether more work pays.
  void NoteCost(double ms) { known_.cost_ms = std::min(known_.cost_ms, ms); }
  // Counts a round of local search, likewise: a descent from somewhere else.
  void CountRound() { ++known_.rounds; }

  // Count the work of a search inside this one, or beside it.
  void CountInside(const SearchContext& inner);
  void CountBeside(const SearchContext& other);
  // Begins a stage; the counted work continues. A search whose strategy begins none is a single
  // stage.
  void Begin(const SearchStage& stage);
  const SearchStage& stage() const { return stage_; }
  // Returns whether this stage ends when the time budget does.
  bool uses_time_budget() const {
    return stage_.is_last && request_.search.time_budget.has_value();
  }
  // Work done so far. A search beside another one starts with the other's.
  double work_ns() const { return work_ns_; }
  void StartWithWork(double work_ns) { work_ns_ = work_ns; }
  // The least work that the effort gives this stage: that of a quick search, or of a thorough one.
  // It is known also where a time budget or refine_steps end the search.
  double least_work_ns() const { return least_work_ns_; }

  // Takes a legal placement that is cheaper than all before by the strategy's comparison, prices it
  // by PricePlan and tells the observer.
  Status Improve(const Placement& placement);
  Status Improve(Plan plan);
  // Takes a legal plan only if its price is lower, and returns whether it was.
  StatusOr<bool> ImproveIfCheaper(Plan plan);

  // Reports progress, clamped to [0, 1] and to what was reported before.
  void ReportProgress(double share);

  bool has_plan() const { return best_.has_value(); }
  // Cost of the last plan of Improve. Requires has_plan().
  double best_cost_ms() const { return best_->cost.embedding_cost_ms; }
  const Plan& best_plan() const { return best_->plan; }

  // Returns the answer after the strategy has returned `status`: the last plan of Improve, or why
  // there is none.
  StatusOr<SearchResult> Finish(const Status& status);

 private:
  Status Take(Plan plan, PlanCost cost);
  // At the end of the work given so far, and whenever it has doubled before: whether there is more
  // to do.
  bool GoesOn();
  // Whether no plan is so much cheaper than the best one that more work would pay.
  bool IsAtBound();

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
  double least_work_ns_ = 0;
  // Work until the stage ends, and until GoesOn is to look at the cost; infinite where the request
  // says otherwise when to end.
  double end_ns_ = 0;
  double next_check_ns_ = 0;
  // What a stage has come to.
  struct Found {
    double cost_ms = std::numeric_limits<double>::infinity();
    std::int64_t rounds = 0;
  };
  Found known_;
  std::array<Found, 2> checked_;    // at the last checks, the oldest first
  std::optional<double> bound_ms_;  // LowerBoundOf where it is certified, else 0
  double progress_ = 0;
  bool stopped_ = false;
};

// A search strategy. Thread-safe: one may serve any number of searches.
//
// It
// 1. gives every plan that beats its earlier ones to SearchContext::Improve, the first as early as
//    it can; each is legal;
// 2. polls ShouldStop at every step and, once it is true, returns OK without further work, with or
//    without a plan;
// 3. returns FAILED_PRECONDITION when it has no plan, with a reason that says whether it is proven;
// 4. depends on nothing but the context: no clock, no randomness but the request's seed.
using Strategy = std::function<Status(SearchContext& context)>;

}  // namespace neuroshard
