// Intervals of a plan's cost, by rank and in total.
#pragma once

#include "common/domain/plan.h"
#include "common/domain/plan_cost.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// `cost` is PricePlan of the plan under `model`; fills its intervals, and interval_coverage where
// there are any. The compute interval of a rank without shards is [0, 0]. Leaves everything as it
// is where ModelProperties::interval_coverage is 0. Errors as in PricePlan.
Status AddIntervals(const PlanRequest& request, const Plan& plan, const BoundCostModel& model,
                    PlanCost& cost);

}  // namespace neuroshard
