// `refine`: the best plan of the other strategies, improved by local search for as long as it may.
#pragma once

#include "server/search/core/search_context.h"

namespace neuroshard {

// Never dearer than `neuroshard` up to the sizes that README.md gives. Obeys constraints and starts
// from a previous plan.
Status RunRefine(SearchContext& context);

}  // namespace neuroshard
