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

std::optional<Infeasibility> Prove(const ConstraintFacts& facts, const Facts& kept) {
  return ProveInfeasible(facts.With(kept));
}

// A minimal list among `given`, which shows it.
Facts MinimalAmong(const ConstraintFacts& facts, const Facts& given) {
  const auto pick = [&](const Facts& positions) {
    Facts picked;
    for (const std::size_t position : positions) picked.push_back(given[position]);
    return picked;
  };
  return pick(MinimalSet(given.size(), [&](const Facts& positions) {
    return Prove(facts, pick(positions)).has_value();
  }));
}

// What is left of all facts when only a proof's tables are looked at, where every question is
// shorter.
Facts NeededForTables(const ConstraintFacts& facts, const ConstraintFacts& of_tables) {
  Facts all_of_tables(of_tables.size());
  std::iota(all_of_tables.begin(), all_of_tables.end(), std::size_t{0});
  Facts all(facts.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  if (!Prove(of_tables, all_of_tables).has_value()) return all;
  std::set<std::string> paths;
  for (const std::size_t fact : MinimalAmong(of_tables, all_of_tables)) {
    paths.insert(of_tables.Path(fact));
  }
  std::erase_if(all, [&](std::size_t fact) { return !paths.contains(facts.Path(fact)); });
  return all;
}

}  // namespace

std::optional<Conflict> FindConflict(const PlanRequest& request, TypeSet default_types) {
  const ConstraintFacts facts(request, default_types);
  Facts given(facts.size());
  std::iota(given.begin(), given.end(), std::size_t{0});
  const std::optional<Infeasibility> proof = Prove(facts, given);
  if (!proof.has_value()) return std::nullopt;
  const Facts needed =
      NeededForTables(facts, ConstraintFacts(request, default_types, proof->tables));
  // With all tables again: a demand that seemed to be needed may not be, where the others
  // contradict each other over other tables too.
  if (Prove(facts, needed).has_value()) given = needed;
  given = MinimalAmong(facts, given);

  Conflict conflict;
  conflict.reason = Prove(facts, given)->reason;
  for (const std::size_t fact : given) {
    conflict.demands.push_back({facts.Path(fact), facts.Says(fact)});
  }
  return conflict;
}

Status ToStatus(const Conflict& conflict) {
  Violations violations;
  std::string list;
  for (const ConflictingDemand& demand : conflict.demands) {
    violations.Add(demand.path,
                   fmt::format("{}; no plan keeps this and the other demands listed", demand.says));
    list += fmt::format("{}{} ({})", list.empty() ? "" : "; ", demand.path, demand.says);
  }
  Status status = FailedPrecondition("no plan keeps all of these: {}. {}", list, conflict.reason);
  violations.ToStatus().ForEachPayload(
      [&](absl::string_view type, const absl::Cord& payload) { status.SetPayload(type, payload); });
  return status;
}

}  // namespace neuroshard
