// Kept tables: those that Migration::only_types leaves where they are.
#pragma once

#include "common/base/status.h"
#include "common/domain/plan_request.h"

namespace neuroshard {

// Whether each of them can stay exactly as it is in the plan in place, whatever other tables do,
// and all of them fit into their ranks' memory together. FAILED_PRECONDITION with each rule that
// one breaks, at its path in migration.previous, and each rank that has no room.
// O(tables + shards of the plan in place).
Status CheckKeptTables(const PlanRequest& request);

}  // namespace neuroshard
