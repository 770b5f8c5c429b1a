// The algorithms that FindPacking tries one after the other.
#pragma once

#include <optional>

#include "common/domain/plan_request.h"
#include "server/search/packing/find_packing.h"

namespace neuroshard {

enum class PackingOrder {
  kLargestTableFirst,    // few cuts
  kLargestGranuleFirst,  // least waste: what is left on a rank is smaller than the granules still
                         // to come
};

// Best-fit decreasing: places tables in that order, each on the rank where it leaves the least
// room. Where columns may be cut, a table that fits nowhere whole is cut: as many columns as fit go
// to the rank that takes most, and so on with the rest. A rank has at most one piece of a table.
// Empty: not found.
std::optional<Placement> PackBestFit(const PlanRequest& request, Cutting cutting,
                                     PackingOrder order);

struct ExactPacking {
  std::optional<Placement> placement;
  bool exhausted = false;  // everything was tried: without a placement, none exists
};

// Searches column cuts exhaustively with a bounded effort: it decides small instances, on which
// heuristics are weakest.
ExactPacking PackColumnsExactly(const PlanRequest& request);

}  // namespace neuroshard
