#include "server/search/conflict/find_conflict.h"

#include <fmt/format.h>

#include <cstddef>
#include <numeric>
#include <set>

#include "common/base/violations.h"
#include "server/evaluate/rules/constraint_facts.h"
#include "server/evaluate/rules/minimal_set.h"
#include "server/search/conflict/infeasibility.h"

namespace neuroshard {
namespace {

using Facts = std::vector<std::size_t>;  // positions in ConstraintFacts, ascending

std::optional<Infeasibility> Prove(const ConstraintFacts& facts, const Facts& kept,
                                   const StopSignal& stop) {
  if (stop.ShouldStop()) return std::nullopt;
  return ProveInfeasible(facts.With(kept), stop);
}

// A minimal list among `given`, which shows it; void once `stop` is true.
Facts MinimalAmong(const ConstraintFacts& facts, const Facts& given, const StopSignal& stop) {
  const auto pick = [&](const Facts& positions) {
    Facts picked;
    for (const std::size_t position : positions) picked.push_back(given[position]);
    return picked;
  };
  return pick(MinimalSet(given.size(), [&](const Facts& positions) {
    return Prove(facts, pick(positions), stop).has_value();
  }));
}

// What is left of all facts when only a proof's tables are looked at, where every question is
// shorter.
Facts NeededForTables(const ConstraintFacts& facts, const ConstraintFacts& of_tables,
                      const StopSignal& stop) {
  Facts all_of_tables(of_tables.size());
  std::iota(all_of_tables.begin(), all_of_tables.end(), std::size_t{0});
  Facts all(facts.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  if (!Prove(of_tables, all_of_tables, stop).has_value()) return all;
  std::set<std::string> paths;
  for (const std::size_t fact : MinimalAmong(of_tables, all_of_tables, stop)) {
    paths.insert(of_tables.Path(fact));
  }
  std::erase_if(all, [&](std::size_t fact) { return !paths.contains(facts.Path(fact)); });
  return all;
}

}  // namespace

std::optional<Conflict> FindConflict(const PlanRequest& request, TypeSet default_types,
                                     const StopSignal& stop) {
  const ConstraintFacts facts(request, default_types);
  Facts given(facts.size());
  std::iota(given.begin(), given.end(), std::size_t{0});
  const std::optional<Infeasibility> proof = Prove(facts, given, stop);
  if (!proof.has_value()) return std::nullopt;
  const Facts needed =
      NeededForTables(facts, ConstraintFacts(request, default_types, proof->tables), stop);
  // With all tables again: a demand that seemed to be needed may not be, where the others
  // contradict each other over other tables too.
  if (Prove(facts, needed, stop).has_value()) given = needed;
  given = MinimalAmong(facts, given, stop);
  const std::optional<Infeasibility> shortest = Prove(facts, given, stop);
  if (!shortest.has_value()) return std::nullopt;

  Conflict conflict;
  conflict.reason = shortest->reason;
  for (const std::size_t fact : given) {
    conflict.demands.push_back({facts.Path(fact), facts.Says(fact)});
  }
  return conflict;
}

Status ToStatus(const Conflict& conflict) {
  const bool several = conflict.demands.size() > 1;
  Violations violations;
  std::string list;
  for (const ConflictingDemand& demand : conflict.demands) {
    violations.Add(demand.path, fmt::format("{}; no plan keeps this{}", demand.says,
                                            several ? " and the other demands listed" : ""));
    list += fmt::format("{}{} ({})", list.empty() ? "" : "; ", demand.path, demand.says);
  }
  // The reason first: a long message is cut on its way.
  Status status = FailedPrecondition("no plan can exist: {}. No plan keeps {}: {}", conflict.reason,
                                     several ? "all of these" : "this", list);
  violations.ToStatus().ForEachPayload(
      [&](absl::string_view type, const absl::Cord& payload) { status.SetPayload(type, payload); });
  return status;
}

}  // namespace neuroshard
