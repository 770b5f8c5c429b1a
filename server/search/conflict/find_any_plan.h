// Last resort of a search that found no plan: any plan, or demands of the request that contradict
// each other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/evaluate/rules/type_set.h"

namespace neuroshard {

struct ConflictingDemand {
  std::string path;  // "constraints.tables[2].ranks", "migration.budget_bytes", "topology" (memory)
  std::string text;  // "only ranks 0, 1 for 'user_id'"

  bool operator==(const ConflictingDemand&) const = default;
};

// No plan keeps all of these, and the proof needs each of them.
struct Conflict {
  std::vector<ConflictingDemand> demands;
  std::string reason;
};

// None: nothing was proven (ProveInfeasible of infeasibility.h says what is looked at). Up to three,
// without demands in common: whoever mends the first need not ask again for the next. Tables may
// have `default_types` where constraints name none; that counts as a demand, at "cost_model". For
// the case that a search found no plan, or before it: about a second at worst each, and some
// milliseconds for most requests. Ends once `stop` is true.
std::vector<Conflict> FindConflicts(const PlanRequest& request, TypeSet default_types,
                                    const StopSignal& stop = NeverStop());

// FAILED_PRECONDITION that says why and lists the demands, with a violation for each. `conflicts`:
// at least one.
Status ToStatus(const std::vector<Conflict>& conflicts);

// A legal plan, good or bad: the first of all if they are few (TryEveryPlan), or after a proof was
// looked for what FindFeasible finds. FAILED_PRECONDITION otherwise: with the demands that
// contradict each other where that is proven, with what would have to move where the migration
// budget is too small for all that was found, else saying that it is not proven. Tables may have
// `default_types` where constraints name none, as in `rules`, which are the request's. Once `stop`
// is true, nothing more is proven.
StatusOr<Plan> FindAnyPlan(const PlanRequest& request, const CompiledRules& rules,
                           TypeSet default_types, const StopSignal& stop = NeverStop());

// The first of all plans if they are few (TryEveryPlan). Nothing means only that none was found.
std::optional<Plan> FindPlanOfFew(const PlanRequest& request, const CompiledRules& rules);

}  // namespace neuroshard
