// Iterated local search with restarts: descent to a local optimum, random changes of the best
// plan and descent again, and once that brings nothing a crossover of the best plans of several
// restarts, or another initial plan.
#pragma once

#include "common/base/status.h"
#include "server/search/refine/initial/initial_solutions.h"
#include "server/search/refine/objective/workbench.h"

namespace neuroshard {

// One search from one solution: `bench` holds it, complete and priced, and `initial` is of that
// bench. It improves on the solution until the request's steps are used up, the context's work is
// spent or it says stop; without a time budget also once nothing has been found for long. The
// solution stays legal while the search goes on, and is no answer when it ends: the context is
// handed every incumbent that is cheaper than all before, at the end of a descent and every 256
// steps. `start`: which of several searches from there this is; they differ in their random numbers,
// and all but the first begin with a random change. The same request and start give the same plan
// unless a clock or a stop cuts. A step takes one neighbourhood of up to three ranks.
Status SearchLocally(Workbench& bench, InitialSolutions& initial, int start);

}  // namespace neuroshard
