// Enumeration of plans, one after the other, as far as a fixed number of steps goes.
#pragma once

#include <optional>
#include <vector>

#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "server/evaluate/rules/compiled_rules.h"

namespace neuroshard {

struct EveryPlanResult {
  std::optional<Plan> plan;  // one that keeps all rules, memory and the migration budget
  bool all_tried = false;    // without a plan: there is none
};

// types[t] are those that the table may have. Of each table the simplest layouts come first.
// Requests with many column cuts are not begun.
EveryPlanResult TryEveryPlan(const PlanRequest& request, const CompiledRules& rules,
                             const std::vector<TypeSet>& types);

}  // namespace neuroshard
