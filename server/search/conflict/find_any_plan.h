// The last resort where a search found no plan.
#pragma once

#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "server/evaluate/rules/type_set.h"

namespace neuroshard {

// A legal plan, good or bad, if one turns up among the first of all (TryEveryPlan); certain for a
// handful of tables on a handful of ranks. FAILED_PRECONDITION otherwise: with the demands that
// contradict each other where that is proven, else saying that it is not. Tables may have
// `default_types` where constraints name none. Once `stop` is true, nothing is proven.
StatusOr<Plan> FindAnyPlan(const PlanRequest& request, TypeSet default_types,
                           const StopSignal& stop = NeverStop());

}  // namespace neuroshard
