// Migration repair: a legal plan near the one that is in place.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/stop_signal.h"
#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "server/evaluate/rules/compiled_rules.h"

namespace neuroshard {

// What can stay where it is stays; what ranks have no room for leaves them, the smallest sum of
// bytes first, and all that has no place gets one, all within the request's migration budget.
// Where laying out one table or two anew is enough, that is found (with up to 64 ways to place the
// parts of a table, all of them; fewest bytes first); what needs more, by ejection. nullopt: none
// was found, or `stop` is true. Deterministic; the work is bounded by the size of the request.
std::optional<Plan> RepairPrevious(const PlanRequest& request, const CompiledRules& rules,
                                   const StopSignal& stop);

// Sets of numbers of things whose `bytes` are `needed` or more together, none of which could be
// left out; the smallest sums of `costs` first, `most` of them at most. Exact for some 20 things.
std::vector<std::vector<int>> CheapestCovers(const std::vector<std::int64_t>& bytes,
                                             const std::vector<std::int64_t>& costs,
                                             std::int64_t needed, std::size_t most);

}  // namespace neuroshard
