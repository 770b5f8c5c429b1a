#include "server/search/conflict/find_conflict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <set>

#include "common/base/failure_reason.h"
#include "common/base/positions.h"
#include "common/base/violations.h"
#include "server/evaluate/rules/demands.h"
#include "server/search/conflict/infeasibility.h"

namespace neuroshard {
namespace {

using DemandList = std::vector<std::size_t>;  // positions in Demands, ascending

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

// What is left of all demands when only a proof's tables are looked at, where every question is
// shorter.
DemandList NeededForTables(const Demands& demands, const Demands& of_tables,
                           const StopSignal& stop) {
  const DemandList all_of_tables = Positions(of_tables.size());
  DemandList all = Positions(demands.size());
  if (!Prove(of_tables, all_of_tables, stop).has_value()) return all;
  std::set<std::string> paths;
  for (const std::size_t demand : MinimalAmong(of_tables, all_of_tables, stop)) {
    paths.insert(of_tables.Path(demand));
  }
  std::erase_if(all, [&](std::size_t demand) { return !paths.contains(demands.Path(demand)); });
  return all;
}

}  // namespace

std::optional<Conflict> FindConflict(const PlanRequest& request, TypeSet default_types,
                                     const StopSignal& stop) {
  const Demands demands(request, default_types);
  DemandList given = Positions(demands.size());
  const std::optional<Infeasibility> proof = Prove(demands, given, stop);
  if (!proof.has_value()) return std::nullopt;
  const DemandList needed =
      NeededForTables(demands, Demands(request, default_types, proof->tables), stop);
  // With all tables again: a demand that seemed to be needed may not be, where the others
  // contradict each other over other tables too.
  if (Prove(demands, needed, stop).has_value()) given = needed;
  given = MinimalAmong(demands, given, stop);
  const std::optional<Infeasibility> shortest = Prove(demands, given, stop);
  if (!shortest.has_value()) return std::nullopt;

  Conflict conflict;
  conflict.reason = shortest->reason;
  for (const std::size_t demand : given) {
    conflict.demands.push_back({demands.Path(demand), demands.Says(demand)});
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
  const bool memory_alone =
      std::all_of(conflict.demands.begin(), conflict.demands.end(),
                  [](const ConflictingDemand& demand) { return demand.path == "topology"; });
  return WithReason(std::move(status), memory_alone ? FailureReason::kOutOfMemory
                                                    : FailureReason::kConstraintsConflict);
}

}  // namespace neuroshard
