// Removal of cuts that do not pay: shards of a table that share a rank are merged.
#pragma once

#include "common/base/status.h"
#include "server/search/core/search_context.h"

namespace neuroshard {

// In the best plan, merges the columns of a table that lie on one rank into one shard, and makes a
// table with all of them on one rank table_wise, where the plan stays legal and costs no more.
// Under a model that states its error the plan may cost 0.5 % more in all: no such model resolves
// so little, while every shard is one more lookup and exchange for the trainer. It does nothing
// where memory is "weights_only", NeuroShard's rule, whose plans are compared with the original's
// to the last digit; with a plan in place, since columns would move; and for unpooled tables, whose
// blocks have one width.
//
// Prices at most 65 plans. Deterministic.
Status MergeShards(SearchContext& context);

// Returns the highest cost that the model cannot tell from the best plan's: the best cost itself
// where MergeShards tolerates nothing.
double MaxEquivalentCostMs(const SearchContext& context);

}  // namespace neuroshard
