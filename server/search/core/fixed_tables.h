// Tables that a search leaves where the plan in place has them.
#pragma once

#include <vector>

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

}  // namespace neuroshard
