// Type obstacles: why a table cannot have a sharding type, as text.
#pragma once

#include <string>

#include "common/domain/plan_request.h"
#include "server/evaluate/rules/type_set.h"

namespace neuroshard {

// A minimal set of demands that keep `type` out of CompiledRules' types for the table, e.g.
// "constraints.tables[2].ranks (only ranks 0, 1 for 'user_id')". Empty if the type is allowed.
// O(constraints) a few times.
std::string TypeObstacle(const PlanRequest& request, TypeSet default_types, int table,
                         ShardingType type);

}  // namespace neuroshard
