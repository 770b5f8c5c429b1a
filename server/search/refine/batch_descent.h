// Batch descent: local search for the mean over sampled batches of the costliest rank
// (PlanObjective::kMeanOfMax).
#pragma once

#include "common/base/status.h"
#include "server/search/core/search_context.h"

namespace neuroshard {

// From the context's best plan, which there must be: shards that stand alone on their rank move and
// change places around the ranks that are costliest in most batches, ranked by estimates
// (BatchPrices); the best are priced in all batches and held against all rules. After a local
// optimum a few random moves and another descent, until 20 such rounds have brought nothing, the
// context's work is spent, refine_steps are done or it says stop. Hands out one plan at most: one
// that is cheaper by MeanOfMaxMs, price of what it moves included, than the plan it began with.
// After a stop nothing is priced in batches any more: a plan that is cheaper by the descent's own
// prices is handed out, where these are of all batches and further apart than they are rounded. A
// function of request, model and the first plan while no stop cuts.
Status DescendByBatches(SearchContext& context);

}  // namespace neuroshard
