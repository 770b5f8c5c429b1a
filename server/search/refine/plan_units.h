// Between plans, the currency of strategies, and the units that local search moves.
#pragma once

#include <vector>

#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "server/search/refine/shard_book.h"
#include "server/search/refine/solution.h"

namespace neuroshard {

// Replaces what `solution` holds by a legal plan of the request. Predicts its shards.
void LoadPlan(const PlanRequest& request, const Plan& plan, ShardBook& book, Solution& solution);

// The solution as a plan: tables in the request's order, columns handed to a table's units in the
// order of their ranks or hosts, a ragged end last.
Plan MakePlan(const PlanRequest& request, const Solution& solution);

}  // namespace neuroshard
