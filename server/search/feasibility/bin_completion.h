// Packings with hardly any free room, found or excluded by the sets of bundles that fill each rank.
#pragma once

#include <cstdint>

#include "common/base/stop_signal.h"
#include "common/domain/plan_request.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/feasibility/placed_bundles.h"

namespace neuroshard {

enum class BinAnswer { kPacked, kNone, kUnknown };

// Puts each bundle of `placed` on one rank as a whole, anew. Returns kPacked when everything is
// placed; otherwise nothing is: kNone when all such placements were tried; kUnknown when `effort`,
// about nanoseconds, was used up, or ranks can be filled by too many sets. kUnknown, too, with
// everything where it was, where there are more than 128 bundles, or one cannot be on one rank. The
// less room is free, the fewer the sets that fill a rank: exact fits of 60 bundles take
// milliseconds, 1 % of free room is out of reach.
BinAnswer CompleteBins(const PlanRequest& request, const CompiledRules& rules,
                       PlacedBundles& placed, const StopSignal& stop, std::int64_t effort);

}  // namespace neuroshard
