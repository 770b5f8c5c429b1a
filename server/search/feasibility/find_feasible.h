// Search for any legal plan, for requests in which room or rules leave few.
#pragma once

#include <optional>

#include "common/base/stop_signal.h"
#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "server/evaluate/rules/compiled_rules.h"

namespace neuroshard {

struct Feasible {
  std::optional<Plan> plan = {};
  bool none = false;  // proven: no plan exists
};

// Returns a legal plan, within the migration budget if there is one, or nothing, which proves
// nothing unless `none` is set. It tries ejection (EjectionSearch) and then, where each table can
// be on one rank, BinCompletion, which decides requests with hardly any free room. The work is
// bounded by the request alone, about a second of a core, and goes on in turns while `stop` has
// time left. Deterministic but for `stop`, which is polled at every step.
Feasible FindFeasible(const PlanRequest& request, const CompiledRules& rules,
                      const StopSignal& stop);

}  // namespace neuroshard
