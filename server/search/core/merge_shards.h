// Cuts that pay nothing: shards of a table that ended up on one rank.
#pragma once

#include "common/base/status.h"
#include "server/search/core/search_context.h"

namespace neuroshard {

// In the best plan, columns of a table that lie on one rank become one shard, and a table with all
// of them on one rank becomes table_wise, where the plan stays legal and costs no more. Under a
// model that states its error the plan may cost 0.5 % more in all: no such model can tell so little,
// while every shard is a lookup and an exchange more for the trainer. Not where memory is
// "weights_only", NeuroShard's rule, whose plans are compared with the original's to the last digit;
// nor with a plan in place, since columns change their places; nor unpooled tables, whose blocks have
// one width.
//
// Prices at most 65 plans. Deterministic.
Status MergeShards(SearchContext& context);

// The most that a plan may cost which is no dearer than the best one as far as the model can tell:
// what the best one costs where MergeShards tolerates nothing.
double MostMsAlike(const SearchContext& context);

}  // namespace neuroshard
