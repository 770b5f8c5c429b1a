// Second goals: what of a plan is made small after its cost (SearchOptions::goals).
#pragma once

#include <functional>

#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"
#include "server/search/core/search_observer.h"
#include "server/search/core/search_result.h"

namespace neuroshard {

// Searches for the cheapest plan of a request; of RunSearch's arguments those that vary.
using SearchForCost = std::function<StatusOr<SearchResult>(
    const PlanRequest& request, const StopSignal& stop, SearchObserver* observer)>;

// The epsilon-constraint method (Haimes et al., 1971): the cheapest plan comes first, and then, goal
// by goal, a bisection for the least value within which `search` still finds a plan that keeps to
// the tolerances of the goals before. A limit on a value is what the request's own words can say
// (less memory, less host memory for copies, a smaller budget, fewer shards a table, fewer types a
// module), so that searches, rules and proofs know nothing of goals. A goal takes nine quick
// searches at most, each again with more work where it ends just above the tolerance, and one in
// full; a search that finds a plan within the tolerances ends there. `observer` (may be null) sees
// the first search's plans. The plan is the same in every run unless `stop` cuts it.
//
// With memory.dense_bytes the plan that is returned has a stash that leaves dense layers room; what
// the observer sees may have none. Where the cheapest has none, one more search looks for the
// cheapest that has, which is then where the tolerances begin. So requests with dense_bytes come
// here without goals as well. FAILED_PRECONDITION: no search found one. DEADLINE_EXCEEDED: `stop`
// left no time to look. A time budget cuts all searches together and lengthens none.
StatusOr<SearchResult> SearchByGoals(const PlanRequest& request, const BoundCostModel& model,
                                     const StopSignal& stop, SearchObserver* observer,
                                     const SearchForCost& search);

// What a legal plan has of a measure; of the cost also what the moves of a migration cost. `cost`:
// what PricePlan says of it.
double ValueOf(PlanMeasure measure, const PlanRequest& request, const Plan& plan,
               const PlanCost& cost);

}  // namespace neuroshard
