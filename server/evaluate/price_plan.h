// The predicted cost of a plan, rank by rank.
#pragma once

#include "common/base/status.h"
#include "common/domain/plan.h"
#include "common/domain/plan_cost.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// compute = head(sum of phi over the rank's shards, in plan order), 0 for a rank without shards;
// backward communication from the ranks' loads (CommLoad); start offset = compute + backward
// communication minus the minimum over ranks; forward communication from loads and start offsets
// (NeuroShard, sections 3.1 and 3.3). Memory is ShardMemory of the shards plus the rank's reserve.
//
// A plan that breaks rules of CheckPlan is priced all the same (too much memory, a missing table),
// unless it cannot be: unknown tables, shards outside their table, ranks that do not exist are
// INVALID_ARGUMENT with all violations. `model` is bound to the request's conditions.
StatusOr<PlanCost> PricePlan(const PlanRequest& request, const Plan& plan,
                             const BoundCostModel& model);

}  // namespace neuroshard
