#include "server/search/conflict/find_any_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>

#include "common/base/bytes.h"
#include "common/base/failure_reason.h"
#include "common/base/positions.h"
#include "common/base/violations.h"
#include "server/evaluate/migration_report.h"
#include "server/evaluate/rules/demands.h"
#include "server/search/conflict/infeasibility.h"
#include "server/search/conflict/proof_parts.h"
#include "server/search/feasibility/find_feasible.h"
#include "server/search/feasibility/migration_repair.h"

namespace neuroshard {
namespace {

using DemandList = std::vector<std::size_t>;  // positions in Demands, ascending

// Whoever mends a request has enough to do with these.
constexpr std::size_t kMaxConflicts = 3;

std::optional<Infeasibility> Prove(const Demands& demands, const DemandList& kept,
                                   const StopSignal& stop) {
  if (stop.ShouldStop()) return std::nullopt;
  return ProveInfeasible(demands.With(kept), stop);
}

// A minimal list among `given`, which shows it; void once `stop` is true.
DemandList MinimalAmong(const Demands& demands, const DemandList& given, const StopSignal& stop) {
  const auto pick = [&](const DemandList& positions) {
    DemandList picked;
    for (const std::size_t position : positions) picked.push_back(given[position]);
    return picked;
  };
  return pick(MinimalSet(given.size(), [&](const DemandList& positions) {
    return Prove(demands, pick(positions), stop).has_value();
  }));
}

// What is left of the demands `given` when only a proof's tables are looked at, where every question
// is shorter.
DemandList NeededForTables(const Demands& demands, const Demands& of_tables, DemandList given,
                           const StopSignal& stop) {
  std::set<std::string> paths;
  for (const std::size_t demand : given) paths.insert(demands.Path(demand));
  DemandList of_given = Positions(of_tables.size());
  std::erase_if(of_given, [&](std::size_t at) { return !paths.contains(of_tables.Path(at)); });
  if (!Prove(of_tables, of_given, stop).has_value()) return given;
  paths.clear();
  for (const std::size_t demand : MinimalAmong(of_tables, of_given, stop)) {
    paths.insert(of_tables.Path(demand));
  }
  std::erase_if(given, [&](std::size_t demand) { return !paths.contains(demands.Path(demand)); });
  return given;
}

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
                     "{} bytes would be enough for one plan that was found", moved);
      return WithReason(WithPayloadsOf(violations.ToStatus(), std::move(status)),
                        FailureReason::kNoPlanFound);
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

Conflict ConflictOf(const Demands& demands, const DemandList& given, std::string reason) {
  Conflict conflict;
  conflict.reason = std::move(reason);
  for (const std::size_t demand : given) {
    conflict.demands.push_back({demands.Path(demand), demands.Text(demand)});
  }
  return conflict;
}

}  // namespace

std::vector<Conflict> FindConflicts(const PlanRequest& request, TypeSet default_types,
                                    const StopSignal& stop) {
  const Demands demands(request, default_types);
  DemandList left = Positions(demands.size());
  std::vector<Conflict> conflicts;
  while (conflicts.size() < kMaxConflicts) {
    const std::optional<Infeasibility> proof = Prove(demands, left, stop);
    if (!proof.has_value()) break;
    // With all tables again: a demand that seemed to be needed may not be, where the others
    // contradict each other over other tables too.
    DemandList given =
        NeededForTables(demands, Demands(request, default_types, proof->tables), left, stop);
    if (!Prove(demands, given, stop).has_value()) given = left;
    given = MinimalAmong(demands, given, stop);
    const std::optional<Infeasibility> shortest = Prove(demands, given, stop);
    if (!shortest.has_value()) break;
    conflicts.push_back(ConflictOf(demands, given, shortest->reason));
    if (given.empty()) break;
    std::erase_if(left, [&](std::size_t at) { return std::ranges::binary_search(given, at); });
  }
  return conflicts;
}

Status ToStatus(const std::vector<Conflict>& conflicts) {
  const bool one = conflicts.size() == 1;
  Violations violations;
  std::string reasons, lists;
  bool is_memory = false;
  for (std::size_t i = 0; i < conflicts.size(); ++i) {
    const std::vector<ConflictingDemand>& demands = conflicts[i].demands;
    const std::string number = one ? "" : fmt::format("({}) ", i + 1);
    std::string others, list;
    if (demands.size() > 1) {
      others = one ? " and the other demands listed"
                   : fmt::format(" and the other demands of contradiction {}", i + 1);
    }
    for (const ConflictingDemand& demand : demands) {
      violations.Add(demand.path, "{}; no plan keeps this{}", demand.text, others);
      list += fmt::format("{}{} ({})", list.empty() ? "" : "; ", demand.path, demand.text);
    }
    reasons += fmt::format("{}{}{}", i == 0 ? "" : "; ", number, conflicts[i].reason);
    lists += fmt::format(". {}No plan keeps {}: {}", number,
                         demands.size() > 1 ? "all of these" : "this", list);
    is_memory = is_memory || std::ranges::all_of(demands, [](const ConflictingDemand& demand) {
                  return demand.path == "topology";
                });
  }
  // Reasons first: a long message is cut on its way.
  return WithReason(WithPayloadsOf(violations.ToStatus(),
                                   FailedPrecondition("no plan can exist: {}{}", reasons, lists)),
                    is_memory ? FailureReason::kOutOfMemory : FailureReason::kConstraintsConflict);
}

std::optional<Plan> FindPlanOfFew(const PlanRequest& request, const CompiledRules& rules) {
  const std::vector<TypeSet> types = Mapped(rules.tables(), &TableRules::types);
  return TryEveryPlan(request, rules, types).plan;
}

StatusOr<Plan> FindAnyPlan(const PlanRequest& request, const CompiledRules& rules,
                           TypeSet default_types, const StopSignal& stop) {
  if (std::optional<Plan> plan = FindPlanOfFew(request, rules)) return *std::move(plan);
  const std::vector<Conflict> conflicts = FindConflicts(request, default_types, stop);
  if (!conflicts.empty()) return ToStatus(conflicts);
  Feasible feasible = FindFeasible(request, rules, stop);
  if (feasible.plan.has_value()) return *std::move(feasible.plan);
  if (feasible.none) {  // by trying, which does not tell what could be left out
    const Demands demands(request, default_types);
    return ToStatus({ConflictOf(demands, Positions(demands.size()),
                                "whole tables were put on ranks in all ways that keep memory and "
                                "constraints, and not all of them have a place in any (which of "
                                "the demands are to blame was not looked for)")});
  }
  return NotFound(request, default_types, stop);
}

}  // namespace neuroshard
