// Text of answers about a plan: cost by rank, bound, migration, explanations.
#pragma once

#include <string>

#include "client/cli/text_table.h"
#include "common/domain/plan_cost.h"
#include "neuroshard/v1/planner.pb.h"

namespace neuroshard {

// As PlanAsTable (plan_output.h), of a plan of `num_tables` tables; then whether it is legal, and
// what it breaks.
std::string EvaluationAsTable(const v1::EvaluatePlanResponse& response, int num_tables,
                              const TextStyle& style);

// "17.000..20.000", in ms.
std::string IntervalText(const v1::CostInterval& interval);

// The part of a memory that is taken; 0 where its capacity is not known.
double UsedShare(const v1::MemoryUse& memory);

// "measured with " before it, and the line's end; empty where nothing is stated.
std::string MeasuredWithLine(const MeasuredWith& with);

// What the prices of an answer rest on; of a planner that does not say it yet, what was timed.
// With the line's end; empty where neither is stated.
std::string BasisLine(const v1::PriceBasis& basis, const v1::MeasuredWith& measured_with);

}  // namespace neuroshard
