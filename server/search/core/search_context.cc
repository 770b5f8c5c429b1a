#include "server/search/core/search_context.h"

#include <cmath>
#include <cstdint>
#include <set>
#include <utility>

#include "server/evaluate/check_plan.h"
#include "server/evaluate/lower_bound.h"
#include "server/evaluate/migration_report.h"
#include "server/evaluate/price_plan.h"

namespace neuroshard {
namespace {

// Cuts between columns: distinct column blocks less one, over all tables.
int CountSplits(const Plan& plan) {
  int splits = 0;
  for (const TablePlan& table : plan.tables) {
    std::set<std::int64_t> blocks;
    for (const Shard& shard : table.shards) blocks.insert(shard.col_offset);
    splits += static_cast<int>(blocks.size()) - 1;
  }
  return splits;
}

// 0.1 ms a table and at least 100 ms. With host memory or SSDs at least 4 ms a rank, too, since
// there is more to decide, and otherwise 50 ms, since its steps take longer than they are counted.
constexpr double kWorkNsATable = 1e5;
constexpr double kWorkNsARankWithHostMemory = 4e6;
constexpr double kMinWorkNs = 1e8;
constexpr double kMinWorkNsWithHostMemory = 5e7;
// A search by default does so many times the work of a quick one, and goes on, twice as long each
// time, while the last three quarters of its work made the plan cheaper by this share, and up to
// this much work; no longer where that share is all that there is to gain. By networks, work with
// fewer rounds of local search says nothing yet. It looks back at powers of two, which all are.
constexpr double kDefaultFactor = 4;
constexpr double kDefaultFactorByNetworks = 8;
constexpr double kDefaultFactorOfSeveralMemories = 16;
constexpr double kLeastGain = 1e-3;
constexpr int kMinRounds = 30;
constexpr double kMaxDefaultWorkNs = 5e9;
constexpr double kThoroughFactor = 100;
// What a thorough search leaves to gain above a certified bound.
constexpr double kLeastGainOfThorough = 1e-5;

// Whether tables may be in more memories than their devices'.
bool HasSeveralMemories(const PlanRequest& request, const SearchStage& stage) {
  return std::ranges::any_of(kSharedMemories, [&](const SharedMemory& of) {
    return of.tier <= stage.slowest && request.may_use(of.tier);
  });
}

double QuickWorkNs(const PlanRequest& request, const SearchStage& stage) {
  const double of_tables = kWorkNsATable * static_cast<double>(request.tables.size());
  if (!HasSeveralMemories(request, stage)) return std::max(kMinWorkNs, of_tables);
  return std::max({kMinWorkNsWithHostMemory, of_tables,
                   kWorkNsARankWithHostMemory * static_cast<double>(request.topology.num_ranks())});
}

// Nanoseconds an item, measured on one core of a Zen 4 server: those of networks by how long
// searches take that have different shares of each.
double NanosecondsOf(Work kind, const ModelProperties& model, double ranks) {
  switch (kind) {
    case Work::kComputeCost:
      return model.additive_compute ? 60 : 125;
    case Work::kRankCost:
      return model.additive_compute ? 40 : 50;
    case Work::kRankPrice:
      if (model.separable_comm) return 40;
      return model.comm_run_a_rank ? 440 : 1.25 * (20 + 300 / ranks + ranks);
    case Work::kEstimate:
      return model.separable_comm ? 30 : 125;
    case Work::kRelayout:
      return 100 + 4 * ranks;
    case Work::kGreedyChoice:
      return 10;
    case Work::kConstruction:
      return 23;
    case Work::kKinds:
      break;
  }
  return 0;
}

}  // namespace

SearchContext::SearchContext(const PlanRequest& request, const BoundCostModel& model,
                             const StopSignal& stop, SearchObserver* observer,
                             const JobRunner* runner)
    : request_(request), model_(model), stop_(stop), observer_(observer), runner_(runner) {
  for (std::size_t kind = 0; kind < work_item_ns_.size(); ++kind) {
    work_item_ns_[kind] = NanosecondsOf(static_cast<Work>(kind), model.properties(),
                                        static_cast<double>(request.topology.num_ranks()));
  }
  statistics_.strategy = request.search.strategy;
  Begin(stage_);
}

void SearchContext::RunJobs(int count, const std::function<void(int)>& job) const {
  if (runner_ != nullptr) {
    runner_->Run(count, job);
  } else {
    SerialRunner().Run(count, job);
  }
}

bool SearchContext::ShouldStop() {
  stopped_ = stopped_ || stop_.ShouldStop();
  return stopped_;
}

void SearchContext::Begin(const SearchStage& stage) {
  stage_ = stage;
  known_ = {};
  checked_.fill(known_);
  const SearchOptions& search = request_.search;
  end_ns_ = least_work_ns_ = next_check_ns_ = QuickWorkNs(request_, stage);
  if (search.effort == SearchEffort::kThorough) {
    end_ns_ = least_work_ns_ = kThoroughFactor * end_ns_;
  } else if (search.effort == SearchEffort::kDefault) {
    const double factor = !model_.properties().additive_compute ? kDefaultFactorByNetworks
                          : HasSeveralMemories(request_, stage) ? kDefaultFactorOfSeveralMemories
                                                                : kDefaultFactor;
    end_ns_ = std::max(end_ns_, std::min(factor * end_ns_, kMaxDefaultWorkNs));
    next_check_ns_ = end_ns_ / factor;
  }
  if (uses_time_budget() || search.refine_steps.has_value()) {
    end_ns_ = next_check_ns_ = std::numeric_limits<double>::infinity();
  }
}

bool SearchContext::GoesOn() {
  const SearchEffort effort = request_.search.effort;
  if (effort == SearchEffort::kQuick || IsAtBound()) return false;
  if (work_ns_ >= end_ns_) {
    // What notes no costs does not go on.
    const bool pays = known_.cost_ms < (1 - kLeastGain) * checked_.front().cost_ms ||
                      (!model_.properties().additive_compute && std::isfinite(known_.cost_ms) &&
                       known_.rounds - checked_.front().rounds < kMinRounds);
    if (effort == SearchEffort::kThorough || !pays || 2 * end_ns_ > kMaxDefaultWorkNs) return false;
    end_ns_ *= 2;
  }
  std::rotate(checked_.begin(), checked_.begin() + 1, checked_.end());
  checked_.back() = known_;
  while (next_check_ns_ <= work_ns_) next_check_ns_ *= 2;
  if (effort == SearchEffort::kThorough) next_check_ns_ = std::min(next_check_ns_, end_ns_);
  return true;
}

bool SearchContext::IsAtBound() {
  if (!bound_ms_) {
    const LowerBound bound = LowerBoundOf(request_, model_);
    bound_ms_ = bound.kind == BoundKind::kCertified ? bound.cost_ms : 0;
  }
  const bool is_thorough = request_.search.effort == SearchEffort::kThorough;
  return (1 - (is_thorough ? kLeastGainOfThorough : kLeastGain)) * known_.cost_ms <= *bound_ms_;
}

void SearchContext::CountInside(const SearchContext& inner) {
  CountBeside(inner);
  work_ns_ += inner.work_ns_;
}

void SearchContext::CountBeside(const SearchContext& other) {
  statistics_.plans_evaluated += other.statistics_.plans_evaluated;
  statistics_.compute_evaluations += other.statistics_.compute_evaluations;
}

Status SearchContext::Improve(const Placement& placement) {
  return Improve(BuildPlan(request_, placement));
}

Status SearchContext::Improve(Plan plan) {
  NS_ASSIGN_OR_RETURN(PlanCost cost, PricePlan(request_, plan, model_));
  return Take(std::move(plan), std::move(cost));
}

StatusOr<bool> SearchContext::ImproveIfCheaper(Plan plan) {
  // A budget is on the whole plan, which a search that looks at single tables does not see.
  if (request_.migration.has_value() && !CheckPlan(request_, plan).empty()) return false;
  NS_ASSIGN_OR_RETURN(PlanCost cost, PricePlan(request_, plan, model_));
  if (has_plan() && !(CostWithMigration(request_, plan, cost) <
                      CostWithMigration(request_, best_->plan, best_->cost))) {
    return false;
  }
  NS_RETURN_IF_ERROR(Take(std::move(plan), std::move(cost)));
  return true;
}

Status SearchContext::Take(Plan plan, PlanCost cost) {
  SearchResult result;
  result.plan = std::move(plan);
  result.cost = std::move(cost);
  NoteCost(CostWithMigration(request_, result.plan, result.cost));
  statistics_.splits = CountSplits(result.plan);
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
