// Last resort of a search that found no plan.
#pragma once

#include <optional>

#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "server/evaluate/rules/compiled_rules.h"

namespace neuroshard {

// A legal plan, good or bad: the first of all if they are few (TryEveryPlan), or after a proof was
// looked for what FindFeasible finds. FAILED_PRECONDITION otherwise: with the demands that
// contradict each other where that is proven, with what would have to move where the migration
// budget is too small for all that was found, else saying that it is not proven. Tables may have
// `default_types` where constraints name none, as in `rules`, which are the request's. Once `stop`
// is true, nothing is proven.
StatusOr<Plan> FindAnyPlan(const PlanRequest& request, const CompiledRules& rules,
                           TypeSet default_types, const StopSignal& stop = NeverStop());

// The first of all plans if they are few (TryEveryPlan). Nothing means only that none was found.
std::optional<Plan> FindPlanOfFew(const PlanRequest& request, const CompiledRules& rules);

}  // namespace neuroshard
