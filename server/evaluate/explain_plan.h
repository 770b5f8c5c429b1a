// Explanations of the sharding types of a plan's tables.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/domain/plan.h"
#include "common/domain/plan_report.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// For tables of the plan, the largest first, what it would cost with that table in each other sharding
// type, at the cheapest of a few places (RelayoutFinder) while all else stays; or why there is no
// such layout: the constraints that forbid it, or the rule or rank that leaves no place. The prices
// are PricePlan's, up to float rounding: shards are added to a rank's sum in another order.
//
// Work is bounded: at most 64 tables, fewer from some 1,000 ranks on (about 8 million rank costs in
// all), of which half are the largest by weights and half those of the costliest ranks. Any plan
// that PricePlan can price; errors as there.
StatusOr<std::vector<TableExplanation>> ExplainPlan(const PlanRequest& request, const Plan& plan,
                                                    const BoundCostModel& model);

}  // namespace neuroshard
