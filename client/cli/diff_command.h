// The changes when one plan takes the place of another: of every table, the bytes that have to
// move, and the costs of both.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/domain/plan.h"
#include "common/domain/table.h"
#include "neuroshard/v1/answers.pb.h"

namespace neuroshard {

// The changes of tables, without costs and notes, and with the kernels of all tables. `tables` give
// the weights' types; those that it lacks have weights of 4 bytes. INVALID_ARGUMENT when the plans
// have no table in common. O(shards before x shards after) for each table.
StatusOr<v1::DiffAnswer> DiffPlans(const Plan& before, const Plan& after,
                                   const std::vector<Table>& tables);

}  // namespace neuroshard
