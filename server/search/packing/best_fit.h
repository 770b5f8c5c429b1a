// Heuristic packing: quick, and right on all but contrived instances.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/domain/plan_request.h"
#include "server/search/placement/placement.h"

namespace neuroshard {

// Whole tables in descending bytes, each to the rank where it leaves the least room. A table that
// fits nowhere gets room by moving one table from a rank to another, or by swapping two tables
// between ranks, whichever leaves the least behind. Empty: not found.
std::optional<Placement> PackWholeTables(const PlanRequest& request);

enum class CutOrder {
  kLargestTableFirst,    // few cuts
  kLargestGranuleFirst,  // least waste: what is left on a rank is smaller than the granules still
                         // to come
};

// The same without making room, but a table that fits nowhere whole is cut: as many columns as fit
// go to the rank that takes most, and so on with the rest. At most one piece of a table on a rank.
// Empty: not found.
std::optional<Placement> PackCuttingColumns(const PlanRequest& request, CutOrder order);

}  // namespace neuroshard
