#include "server/search/conflict/find_any_plan.h"

#include <optional>
#include <utility>
#include <vector>

#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/conflict/every_plan.h"
#include "server/search/conflict/find_conflict.h"

namespace neuroshard {

StatusOr<Plan> FindAnyPlan(const PlanRequest& request, TypeSet default_types,
                           const StopSignal& stop) {
  const CompiledRules rules(request, default_types);
  std::vector<TypeSet> types;
  for (const TableRules& of : rules.tables()) types.push_back(of.types);
  EveryPlanResult result = TryEveryPlan(request, rules, types);
  if (result.plan.has_value()) return *std::move(result.plan);
  if (const std::optional<Conflict> conflict = FindConflict(request, default_types, stop)) {
    return ToStatus(*conflict);
  }
  return FailedPrecondition(
      "no plan was found that keeps all constraints and fits into memory; it is not proven that "
      "there is none");
}

}  // namespace neuroshard
