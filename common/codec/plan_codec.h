// Plan, PlanCost and Migration <-> their messages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/violations.h"
#include "common/domain/constraints.h"
#include "common/domain/plan.h"
#include "common/domain/plan_cost.h"
#include "common/domain/table.h"
#include "neuroshard/v1/cost.pb.h"
#include "neuroshard/v1/migration.pb.h"
#include "neuroshard/v1/plan.pb.h"

namespace neuroshard {

v1::Plan EncodePlan(const Plan& plan);

// INVALID_ARGUMENT listing everything that is not a plan at all: unknown sharding types and
// kernels, unnamed tables, negative ranks, offsets or sizes outside [0, 2^48] (so that sums of two
// do not overflow). Field paths start with "plan.". Whether the plan fits a request is CheckPlan's
// business (server/evaluate).
StatusOr<Plan> DecodePlan(const v1::Plan& message);

// Decodes a plan that is a part of something else: field paths start with `path` and a dot, the
// faults go to `violations`.
Plan DecodePlanAt(const std::string& path, const v1::Plan& message, Violations& violations);

// Whether each table's shards are a layout of its type, of a table of any size (CheckTiling), over
// the plan's own ranks: what a plan in place, and one to be compared, must be without a request that
// it is held against. `plan` is what DecodePlanAt made of `message`; what that refused already is
// passed over.
void CheckTilings(const std::string& path, const v1::Plan& message, const Plan& plan,
                  Violations& violations);

// That no cost is negative, infinite or no number. Field paths start with `path` and a dot.
void CheckCosts(const std::string& path, const v1::PlanCost& message, Violations& violations);

// Shards of all tables.
std::int64_t CountShards(const v1::Plan& message);

// Field paths start with "migration.", those of the plan with "migration.previous.". The plan may
// be for other tables and another topology; it has tables, none of them twice, each laid out in its
// type (CheckTilings) and, where it says so, of the kind that it has in the request. Entries that
// stand for one of `tables` (TablesOf) get its module and name.
Migration DecodeMigration(const v1::Migration& message, const std::vector<Table>& tables,
                          Violations& violations);
// DecodeMigration gives the same migration again.
v1::Migration EncodeMigration(const Migration& migration);

v1::CostInterval EncodeInterval(const CostInterval& interval);

v1::MeasuredWith EncodeMeasuredWith(const MeasuredWith& with);
MeasuredWith DecodeMeasuredWith(const v1::MeasuredWith& message);

v1::PlanCost EncodePlanCost(const PlanCost& cost);

// Derived fields of the message (totals) are computed again, not read. Ranks are taken in the order
// of the message.
PlanCost DecodePlanCost(const v1::PlanCost& message);

}  // namespace neuroshard
