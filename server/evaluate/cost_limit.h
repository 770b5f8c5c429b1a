// Cost limits: which demands of a request keep its lower bound as high as it is.
#pragma once

#include <optional>

#include "common/base/stop_signal.h"
#include "common/domain/plan_report.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// What a request is without the demands that hold its bound.
struct LiftedRules {
  CostLimit limit;  // without `rank` and `cost_without_ms`
  // The request without the demands, for the strategy `refine`; none where none holds the bound.
  std::optional<PlanRequest> without;
};

// What holds a certified bound up; nothing for a reference, and where the bound is the work of all
// tables together, which no demand makes larger by a hundredth. Up to 16 demands are each looked at
// alone, and the one without which the bound is lowest is named; of more, and where none alone
// lowers it, some smallest set. Each look computes a bound, so the tables of all looks are limited:
// beyond 50,000 under SearchOptions::explain a larger set may be named, beyond 1,000 without it
// nothing is, which is a small share of what a plan takes. `bound` is LowerBoundOf(request, model).
// Nothing, too, where `stop` says so before the end.
std::optional<LiftedRules> CostLimitOf(const PlanRequest& request, const BoundCostModel& model,
                                       const LowerBound& bound,
                                       const StopSignal& stop = NeverStop());

}  // namespace neuroshard
