// Finds a plan with the strategy that the request names.
#pragma once

#include <functional>

#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"
#include "server/search/core/job_runner.h"
#include "server/search/core/search_observer.h"
#include "server/search/core/search_result.h"

namespace neuroshard {

// `model` is bound to the request's conditions. A pure function of both as long as `stop` stays
// false: same plan and cost, whoever observes. `observer` may be null. May run on any number of
// threads at the same time with the same model.
//
// `stop` is polled at every step (one table placed, in all alternatives at once). True after the
// first legal plan: the best plan so far, with statistics.time_limit_reached. True before:
// DEADLINE_EXCEEDED. INVALID_ARGUMENT (violations at search.strategy): no such strategy, or one
// that obeys no constraints or starts from no previous plan, and the request has them.
// FAILED_PRECONDITION: there is no plan; the message tells "no plan can exist" (proven, with the
// table or the bytes that lack) from "no plan was found" (none of the bounds excludes one).
StatusOr<SearchResult> RunSearch(const PlanRequest& request, const BoundCostModel& model,
                                 const StopSignal& stop, SearchObserver* observer);

// RunSearch that may use as many cores as the request's search.max_threads. `runner` must outlive
// the function; which one it is changes nothing about the result.
using SearchOnRunner =
    std::function<StatusOr<SearchResult>(const PlanRequest& request, const BoundCostModel& model,
                                         const StopSignal& stop, SearchObserver* observer)>;
SearchOnRunner SearchOn(const JobRunner& runner);

}  // namespace neuroshard
