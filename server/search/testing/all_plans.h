// The oracle for all sharding types and constraints: tries every plan there is. Not a strategy that
// a request can name.
#pragma once

#include <limits>
#include <vector>

#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"
#include "server/evaluate/rules/type_set.h"

namespace neuroshard {

// Every layout of one table: all types, all cuts at multiples of kColumnAlignment, all ranks.
// About 100 for two granules of columns on 4 ranks, 1,000 for four.
std::vector<TablePlan> AllTablePlans(const PlanRequest& request, int table);

struct BestOfAllPlans {
  bool feasible = false;
  double cost_ms = std::numeric_limits<double>::infinity();  // the least of any legal plan
  // The least of cost plus migration price, and a plan that has it.
  double objective_ms = std::numeric_limits<double>::infinity();
  Plan plan;
};

// Over every plan that CheckPlan finds legal and whose types the tables may have: where constraints
// name none, `default_types`. Exponential in tables: two or three small ones on up to 4 ranks.
BestOfAllPlans BestOfAll(const PlanRequest& request, TypeSet default_types,
                         const BoundCostModel& model);

// Whether there is a legal plan at all.
bool AnyPlanIsLegal(const PlanRequest& request, TypeSet default_types);

}  // namespace neuroshard
