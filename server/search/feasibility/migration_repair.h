// A legal plan near the one in place.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/stop_signal.h"
#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "server/evaluate/rules/compiled_rules.h"

namespace neuroshard {

// Returns a plan within the migration budget in which tables stay where they are if they can; the
// smallest sums of bytes leave ranks without room for them, and tables without a place get one.
// Where laying out one or two tables anew is enough, the plan with the fewest bytes is found (all
// placements of the parts of a table are tried where there are at most 64); beyond that, one is
// searched by ejection. nullopt: none was found, or `stop` is true. Deterministic; the work is
// bounded by the size of the request.
std::optional<Plan> RepairPrevious(const PlanRequest& request, const CompiledRules& rules,
                                   const StopSignal& stop);

// Returns minimal sets of item numbers whose `bytes` sum to at least `needed`, the smallest sums of
// `costs` first, at most `most` of them. Exact for about 20 items.
std::vector<std::vector<int>> CheapestCovers(const std::vector<std::int64_t>& bytes,
                                             const std::vector<std::int64_t>& costs,
                                             std::int64_t needed, std::size_t most);

}  // namespace neuroshard
