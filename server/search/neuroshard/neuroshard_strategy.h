// NeuroShard's search (section 3.3): beam search over column splits outside, greedy grid inside.
#pragma once

#include "server/search/core/search_context.h"

namespace neuroshard {

// The paper's search, with the same decisions. Where its inner search finds no plan for the uncut
// tables, the first plan is one that only has to fit into memory: greedy without a dim cap, else
// FindPacking with column cuts. It stays the answer if nothing cheaper is found. Where the paper's
// search finds no plan at any level, it is repeated without dim cap.
Status RunNeuroShard(SearchContext& context);

}  // namespace neuroshard
