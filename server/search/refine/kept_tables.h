// Which tables stay where the plan in place has them.
#pragma once

#include <cstddef>
#include <vector>

#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "server/evaluate/rules/type_set.h"

namespace neuroshard {

// By table of the request: its plan in Migration::previous where the request has the table in the
// same size and would allow that plan; otherwise null. Points into `request`, which must have a
// migration. Memory and what rules say of several tables together are not looked at.
std::vector<const TablePlan*> TablesThatCanStay(const PlanRequest& request, TypeSet default_types);

// Of `stay`, what is kept when tables with up to `bytes` may be laid out anew: those with the most
// lookups a byte are freed first, a table as soon as its bytes, in all the copies that it may get,
// are within what is left. Whatever becomes of the freed ones, no more than `bytes` move.
std::vector<const TablePlan*> KeepAllBut(const PlanRequest& request,
                                         std::vector<const TablePlan*> stay, double bytes,
                                         bool copies);

// Bytes of the weights of all tables that can stay.
double BytesOf(const PlanRequest& request, const std::vector<const TablePlan*>& stay);

}  // namespace neuroshard
