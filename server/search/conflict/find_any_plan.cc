#include "server/search/conflict/find_any_plan.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/failure_reason.h"
#include "common/base/violations.h"
#include "server/evaluate/migration_report.h"
#include "server/search/conflict/every_plan.h"
#include "server/search/conflict/find_conflict.h"
#include "server/search/feasibility/find_feasible.h"
#include "server/search/feasibility/migration_repair.h"

namespace neuroshard {
namespace {

// What is to be said where neither a plan nor a proof was found.
Status NotFound(const PlanRequest& request, TypeSet default_types, const StopSignal& stop) {
  if (request.migration.has_value() && request.migration->budget_bytes.has_value()) {
    PlanRequest unbounded = request;
    unbounded.migration->budget_bytes.reset();
    const CompiledRules rules(unbounded, default_types);
    const std::optional<Plan> plan = RepairPrevious(unbounded, rules, stop);
    if (plan.has_value()) {
      const std::int64_t moved = ReportMigration(request, *plan).moved_bytes;
      Status status = FailedPrecondition(
          "no plan was found that moves no more than migration.budget_bytes, {} ({}), though one "
          "that moves {} ({}) keeps everything else; it is not proven that there is none",
          *request.migration->budget_bytes, FormatBytes(*request.migration->budget_bytes), moved,
          FormatBytes(moved));
      Violations violations;
      violations.Add("migration.budget_bytes",
                     fmt::format("{} bytes would be enough for one plan that was found", moved));
      violations.ToStatus().ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
        status.SetPayload(type, payload);
      });
      return WithReason(std::move(status), FailureReason::kNoPlanFound);
    }
  }
  return WithReason(FailedPrecondition(
                        "no plan was found that keeps all constraints{} and fits into memory; it "
                        "is not proven that there is none",
                        request.migration.has_value() && request.migration->budget_bytes.has_value()
                            ? " and the migration budget"
                            : ""),
                    FailureReason::kNoPlanFound);
}

}  // namespace

std::optional<Plan> FindPlanOfFew(const PlanRequest& request, const CompiledRules& rules) {
  std::vector<TypeSet> types;
  for (const TableRules& of : rules.tables()) types.push_back(of.types);
  return TryEveryPlan(request, rules, types).plan;
}

StatusOr<Plan> FindAnyPlan(const PlanRequest& request, const CompiledRules& rules,
                           TypeSet default_types, const StopSignal& stop) {
  if (std::optional<Plan> plan = FindPlanOfFew(request, rules)) return *std::move(plan);
  if (const std::optional<Conflict> conflict = FindConflict(request, default_types, stop)) {
    return ToStatus(*conflict);
  }
  Feasible feasible = FindFeasible(request, rules, stop);
  if (feasible.plan.has_value()) return *std::move(feasible.plan);
  if (feasible.none) {
    return WithReason(
        FailedPrecondition("no plan can exist: whole tables were put on ranks in all ways that "
                           "keep memory and constraints, and not all of them have a place in any"),
        request.constraints.empty() && default_types == TypeSet::All()
            ? FailureReason::kOutOfMemory
            : FailureReason::kConstraintsConflict);
  }
  return NotFound(request, default_types, stop);
}

}  // namespace neuroshard
