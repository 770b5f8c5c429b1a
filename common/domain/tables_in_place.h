// Tables of a request that the plan in place has, in their present size.
#pragma once

#include <vector>

#include "common/domain/plan.h"
#include "common/domain/plan_request.h"

namespace neuroshard {

// By table of the request: its entry in Migration::previous, or null: there is none, or it is of
// another size, or there is no migration. Of a table that the plan names twice, the first entry
// counts. Any values may stand in the plan. Points into `request`. O(k log k) for k shards.
std::vector<const TablePlan*> TablesInPlace(const PlanRequest& request);

}  // namespace neuroshard
