// One plan for several topologies, for jobs that run on whichever is free.
#pragma once

#include <span>

#include "client/cli/what_if_row.h"
#include "common/base/status.h"
#include "common/base/violations.h"
#include "neuroshard/v1/what_if.pb.h"

namespace neuroshard {

// Adds what keeps these topologies from having one plan, without a call.
void CheckOnePlan(const v1::WhatIf& what_if, Violations& violations);

// Prices on all topologies each one's own plan and, where devices have more memory than those of
// another, a plan for the least memory of all: up to n plans and 2 n^2 prices of n topologies. Sets
// answer.one_plan to the plan whose worst ratio to the own plans is least, and what it costs in each
// row. planned[i] is of answer.rows[i]. UNAVAILABLE is an error; what else goes wrong with own
// plans is said in the answer. Where there is none for the least memory, own plans are the choice.
Status AddOnePlan(const PlannerClient& planner, std::span<const PlannedRow> planned,
                  v1::WhatIfAnswer& answer);

}  // namespace neuroshard
