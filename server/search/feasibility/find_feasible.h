// Feasible plans for requests in which room or rules leave few.
#pragma once

#include <optional>

#include "common/base/stop_signal.h"
#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "server/evaluate/rules/compiled_rules.h"

namespace neuroshard {

struct Feasible {
  std::optional<Plan> plan;
  bool none = false;  // there is no plan: all were tried
};

// Any legal plan, within the migration budget if there is one; or nothing, which proves nothing
// unless it says so. First by ejection (EjectionSearch), then, where each table can be on one rank,
// by what fills ranks (BinCompletion), which decides what has next to no room to spare. The work
// has an end that depends on the request alone, about a second of a core, and goes on in turns
// while `stop` has time left. Deterministic but for that and for `stop`, which is polled every
// step.
Feasible FindFeasible(const PlanRequest& request, const CompiledRules& rules,
                      const StopSignal& stop);

}  // namespace neuroshard
