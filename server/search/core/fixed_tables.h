// Tables that a search leaves where the plan in place has them.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "server/evaluate/rules/compiled_rules.h"

namespace neuroshard {

// Returns, by table, its plan in Migration::previous if the request has the table in the same size
// and allows that plan for it, else null. The pointers go into `request`, which must have a
// migration. Memory and rules between tables are ignored.
std::vector<const TablePlan*> TablesThatCanStay(const PlanRequest& request,
                                                const CompiledRules& rules);

// Tables of a plan in place that local search leaves alone, by table; null: free. Empty: all are.
using FixedTables = std::vector<const TablePlan*>;

// Returns the tables of `stay` that remain fixed when tables with up to `bytes` in all, without
// replicas, may be laid out anew; those with the most lookups per byte are freed first.
// paid[table]: bytes that the table moves in `stay` anyway, and so may always move. Tables that
// rules keep in place (TableRules::kept) stay fixed.
FixedTables FixAllBut(const PlanRequest& request, const CompiledRules& rules,
                      const std::vector<const TablePlan*>& stay, const std::vector<double>& paid,
                      double bytes);

// Returns the bytes of the weights of all tables that can stay and may move, in all the replicas
// that each may get, less the paid ones.
double BytesOf(const PlanRequest& request, const CompiledRules& rules,
               const std::vector<const TablePlan*>& stay, const std::vector<double>& paid);

// Whether each table that Migration::only_types leaves where it is can stay exactly as it is in the
// plan in place, whatever other tables do, and all of them fit into their ranks' memory together.
// FAILED_PRECONDITION with each rule that one breaks, at its path in migration.previous, and each
// rank that has no room. O(tables + shards of the plan in place).
Status CheckKeptTables(const PlanRequest& request);

}  // namespace neuroshard
