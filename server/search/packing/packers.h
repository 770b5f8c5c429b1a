// The algorithms that FindPacking tries one after the other.
#pragma once

#include <optional>

#include "common/domain/plan_request.h"
#include "server/search/placement/placement.h"

namespace neuroshard {

// Places whole tables in descending bytes, each on the rank where it leaves the least room. A table
// that fits nowhere gets room by moving one table to another rank, or by swapping two tables
// between ranks, whichever leaves the least behind. Fast, and successful on all but contrived
// instances. Empty: not found.
std::optional<Placement> PackWholeTables(const PlanRequest& request);

enum class CutOrder {
  kLargestTableFirst,    // few cuts
  kLargestGranuleFirst,  // least waste: what is left on a rank is smaller than the granules still
                         // to come
};

// Places tables likewise but without making room; a table that fits nowhere whole is cut: as many
// columns as fit go to the rank that takes most, and so on with the rest. A rank has at most one
// piece of a table. Empty: not found.
std::optional<Placement> PackCuttingColumns(const PlanRequest& request, CutOrder order);

struct ExactPacking {
  std::optional<Placement> placement;
  bool exhausted = false;  // everything was tried: without a placement, none exists
};

// Searches column cuts exhaustively with a bounded effort: it decides small instances, on which
// heuristics are weakest.
ExactPacking PackColumnsExactly(const PlanRequest& request);

}  // namespace neuroshard
