// The planner without its transport: it finds the model, searches, and checks the answer.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/base/violations.h"
#include "common/domain/measurement.h"
#include "common/domain/plan.h"
#include "common/domain/plan_cost.h"
#include "common/domain/plan_report.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"
#include "server/planner/version_hint.h"
#include "server/search/core/search_observer.h"
#include "server/search/core/search_result.h"

namespace neuroshard {

// A plan that was searched or evaluated, with its predicted cost. Final answers have intervals,
// where the model has any.
struct PlanAnswer : SearchResult {
  double search_ms = 0;  // wall time of the search until this plan was handed out
  CostModelRef model;    // the one that priced it; version is always set
  PriceBasis basis;
  std::vector<std::string> warnings;
  // Rules that an evaluated plan breaks; empty: it is legal.
  std::vector<Violation> violations;
  std::optional<LowerBound> lower_bound;  // always there where the plan has a cost
  // Explanations of the final answer, if the request asks and the stop leaves time.
  std::vector<TableExplanation> explanations;
  std::optional<MigrationReport> migration;  // where the request has one
  std::optional<StashReport> stash;  // of a legal final answer, where the request stashes tables
  std::optional<double> analytic_cost_ms;  // of the final answer, unless the formulas priced it

  // False if the plan is too broken to be priced.
  bool has_cost() const { return !cost.ranks.empty(); }
};

// The compute cost of one set of shards on one device.
struct ComputePrediction {
  ComputeCost cost;
  std::optional<ComputeInterval> interval;  // where the model has intervals
};

// Predictions of one model, which all sets share.
struct PredictionAnswer {
  std::vector<ComputePrediction> predictions;  // one for each set
  CostModelRef model;
  PriceBasis basis;
  bool splits_compute = false;  // the model tells forward from backward
  double interval_coverage = 0;
  MeasuredWith measured_with;
  std::vector<std::string> warnings;
};

// Observes one search; every plan is checked like the final answer's.
using PlanObserver = ObserverOf<PlanAnswer>;

// Finds the models that may price a request, best first, e.g. ModelSnapshot::FindFor of the newest
// snapshot. A prediction, which has no plan, is a request with nothing but its cost_model.
// FAILED_PRECONDITION, listing what there is, when there is none. Thread-safe.
using ModelFinder = std::function<StatusOr<std::vector<std::shared_ptr<const CostModel>>>(
    const PlanRequest& request)>;

// RunSearch of server/search, which states the contract.
using SearchFunction =
    std::function<StatusOr<SearchResult>(const PlanRequest& request, const BoundCostModel& model,
                                         const StopSignal& stop, SearchObserver* observer)>;

// Returns FAILED_PRECONDITION where the request names a digest and the model has another.
Status CheckDigest(const CostModelRef& asked, const CostModelInfo& model);

// Answers requests. A request takes its model once, the first that can price it, bound to the
// request's conditions, and all of its answer comes from that object, except the VersionHint. Where
// that model measured no communication, the fabric of the request's devices prices it, where there
// is one. An answer depends on the request and the model alone, as long as no time limit is hit.
// Stateless and thread-safe.
class Planner {
 public:
  // `clock` must outlive the planner. Without `versions_of` there are no hints.
  Planner(ModelFinder find_model, SearchFunction search, const Clock& clock,
          VersionFinder versions_of = nullptr)
      : find_model_(std::move(find_model)),
        search_(std::move(search)),
        clock_(clock),
        versions_of_(std::move(versions_of)) {}

  // Searches a plan. A stop after the first legal plan ends the search with the best plan so far
  // (statistics.time_limit_reached); a stop before it is DEADLINE_EXCEEDED. The request's time
  // budget counts from the first legal plan; without a budget no clock is read.
  // FAILED_PRECONDITION: no such model, a model that cannot price this many ranks, or no plan.
  // INVALID_ARGUMENT: unknown strategy. INTERNAL, with the broken rules: the search made an illegal
  // plan, which is a bug. `observer` may be null.
  StatusOr<PlanAnswer> MakePlan(const PlanRequest& request, const StopSignal& stop,
                                PlanObserver* observer) const;

  // Checks and prices a plan made elsewhere. An illegal plan is an answer, not an error. Errors
  // about the model are those of MakePlan. Of the search options only `explain` counts.
  StatusOr<PlanAnswer> EvaluatePlan(const PlanRequest& request, const Plan& plan) const;

  // Predicts what one device computes on each set of shards (at least one), each a table of its own,
  // at the batch size and optimizer of the set. FAILED_PRECONDITION: no such model.
  // DEADLINE_EXCEEDED when `stop` ends it, which is polled every few thousand shards.
  StatusOr<PredictionAnswer> Predict(const CostModelRef& model, std::span<const ComputeSample> sets,
                                     const StopSignal& stop) const;

 private:
  const ModelFinder find_model_;
  const SearchFunction search_;
  const Clock& clock_;
  const VersionFinder versions_of_;
};

}  // namespace neuroshard
