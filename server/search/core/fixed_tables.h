// Fixed tables: those that stay where the plan in place has them.
#pragma once

#include <vector>

#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "server/evaluate/rules/compiled_rules.h"

namespace neuroshard {

// By table of the request: its plan in Migration::previous where the request has the table in the
// same size and would allow that plan; otherwise null. Points into `request`, which must have a
// migration. Memory and what rules say of several tables together are not looked at.
std::vector<const TablePlan*> TablesThatCanStay(const PlanRequest& request,
                                                const CompiledRules& rules);

// Which tables of a plan in place local search leaves alone. Empty vectors: none.
struct FixedTables {
  std::vector<const TablePlan*> plans;  // by table; null: free
  // By table: free, but not to be copied to every rank.
  std::vector<bool> uncopied;
};

// Of `stay`, what is fixed when tables with up to `bytes` may be laid out anew. Those with the most
// lookups a byte are freed first. paid[table]: bytes that the table moves in `stay` already, and so
// may move in any case. Where `bytes` pay for all of them once, all are, and what is left
// over pays for copies; otherwise a table is freed with its copies while these take a small part of
// what is left, or else without. Whatever becomes of the freed ones, no more than `bytes` move
// besides what is paid. What rules keep in place (TableRules::kept) is fixed.
FixedTables FixAllBut(const PlanRequest& request, const CompiledRules& rules,
                      const std::vector<const TablePlan*>& stay, const std::vector<double>& paid,
                      double bytes);

// Bytes of the weights of all tables that can stay and may move, in all the copies that each may
// get, less what is paid.
double BytesOf(const PlanRequest& request, const CompiledRules& rules,
               const std::vector<const TablePlan*>& stay, const std::vector<double>& paid);

}  // namespace neuroshard
