// Conflict: demands of a request that contradict each other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/domain/plan_request.h"
#include "server/evaluate/rules/type_set.h"

namespace neuroshard {

struct ConflictingDemand {
  std::string path;  // "constraints.tables[2].ranks", "migration.budget_bytes", "topology" (memory)
  std::string says;  // "only ranks 0, 1 for 'user_id'"

  bool operator==(const ConflictingDemand&) const = default;
};

// No plan keeps all of these, and the proof needs each of them.
struct Conflict {
  std::vector<ConflictingDemand> demands;
  std::string reason;
};

// nullopt: nothing was proven (ProveInfeasible of infeasibility.h says what is looked at). Tables
// may have `default_types` where constraints name none; that counts as a demand, at "cost_model".
// For the case that a search found no plan, or before it: about a second at worst, and some
// milliseconds for most requests. nullopt once `stop` is true.
std::optional<Conflict> FindConflict(const PlanRequest& request, TypeSet default_types,
                                     const StopSignal& stop = NeverStop());

// FAILED_PRECONDITION that says why and lists the demands, with a violation for each.
Status ToStatus(const Conflict& conflict);

}  // namespace neuroshard
