// The changes when one plan takes the place of another: of every table, the bytes that have to
// move, and the costs of both.
#pragma once

#include <string>
#include <vector>

#include "client/cli/text_table.h"
#include "common/base/status.h"
#include "common/domain/plan.h"
#include "common/domain/plan_cost.h"
#include "common/domain/table.h"
#include "neuroshard/v1/answers.pb.h"

namespace neuroshard {

// The changes of tables, without costs and notes, and with the kernels of all tables. `tables` give
// the weights' types; those that it lacks have weights of 4 bytes. INVALID_ARGUMENT when the plans
// have no table in common. O(shards before x shards after) for each table.
StatusOr<v1::DiffAnswer> DiffPlans(const Plan& before, const Plan& after,
                                   const std::vector<Table>& tables);

// Adds what one of the plans costs.
void AddCost(const PlanCost& cost, bool after, v1::DiffAnswer& diff);

// Clears the kernels of tables where they follow from the types.
void LeaveOutKernels(v1::DiffAnswer& diff);

// The changed tables that move most; the rest is counted. `diff` has the kernels of all tables.
std::string DiffAsText(const v1::DiffAnswer& diff, const TextStyle& style);

}  // namespace neuroshard
