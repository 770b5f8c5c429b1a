// Tries plan after plan, as far as a fixed number of steps goes.
#pragma once

#include <vector>

#include "common/domain/plan_request.h"
#include "server/evaluate/rules/compiled_rules.h"

namespace neuroshard {

enum class EveryPlanResult { kFound, kNone, kNotFinished };

// kFound: some plan keeps all rules, memory and the migration budget. kNone: every one was tried
// and none does. types[t] are those that the table may have. Requests with many column cuts are not
// begun.
EveryPlanResult TryEveryPlan(const PlanRequest& request, const CompiledRules& rules,
                             const std::vector<TypeSet>& types);

}  // namespace neuroshard
