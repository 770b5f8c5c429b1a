// Packing by exhaustive search with a bounded effort: decides small instances, on which heuristics
// are weakest.
#pragma once

#include <optional>

#include "common/domain/plan_request.h"
#include "server/search/packing/find_packing.h"
#include "server/search/placement/placement.h"

namespace neuroshard {

struct ExactPacking {
  std::optional<Placement> placement;
  bool exhausted = false;  // everything was tried: without a placement, none exists
};

ExactPacking PackExactly(const PlanRequest& request, Cutting cutting);

}  // namespace neuroshard
