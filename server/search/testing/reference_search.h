// NeuroShard's search written down as the paper describes it, one prediction at a time: what the
// real one is compared with in tests.
#pragma once

#include <limits>

#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

struct ReferenceResult {
  double cost_ms = std::numeric_limits<double>::infinity();  // infinite: no plan
  Plan plan;
  bool uncut_found = false;  // whether the tables had a plan before any split
};

// No fallback of any kind: no plan where the paper's search has none.
ReferenceResult ReferenceSearch(const PlanRequest& request, const BoundCostModel& model);

}  // namespace neuroshard
