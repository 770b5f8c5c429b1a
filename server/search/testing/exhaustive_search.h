// The oracle of the search tests: tries everything. Not a strategy that a request can name.
#pragma once

#include <limits>

#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"
#include "server/search/placement/placement.h"

namespace neuroshard {

struct ExhaustiveResult {
  bool feasible = false;
  double best_cost_ms = std::numeric_limits<double>::infinity();
};

// The cheapest of all assignments of whole tables and of the tables after up to `max_splits`
// halvings. Exponential in everything: for a handful of tables and ranks.
ExhaustiveResult ExhaustiveSearch(const PlanRequest& request, const BoundCostModel& model,
                                  int max_splits);

// Whether any way of cutting columns at multiples of kColumnAlignment fits into memory.
bool AnyColumnPackingFits(const PlanRequest& request);

}  // namespace neuroshard
