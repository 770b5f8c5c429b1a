// The baselines of NeuroShard's release, without a cost model: greedy by additive table loads, and
// random.
#pragma once

#include <optional>
#include <vector>

#include "server/search/core/search_context.h"
#include "server/search/placement/placement.h"

namespace neuroshard {

enum class TableLoad {
  kSize,        // bytes of weights
  kDim,         // dim
  kLookup,      // dim x pooling factor
  kSizeLookup,  // dim x pooling factor x log10(rows)
};

// Places pieces in descending load (ties: lower index first), each on the rank with the lowest sum
// of loads among those with room for it (ties: less memory used, then the lower index). Empty where
// a piece found no room or the context stopped. O(pieces x ranks).
std::optional<Placement> PlaceByLoad(SearchContext& context, TableLoad load,
                                     std::vector<Piece> pieces);

// Greedy by table load: PlaceByLoad of LeastPieces. The release knows whole tables alone, and has
// no plan where one is larger than every rank. Where a table finds no room, the release puts it on
// the last rank; here FindPacking's placement replaces the whole one.
Status RunGreedyBaseline(SearchContext& context, TableLoad load);

// Random placement: whole tables in the request's order, each on a rank drawn uniformly, by the
// request's seed, from those with room for it. Where a table finds no room, FindPacking's placement
// replaces the whole one.
Status RunRandomBaseline(SearchContext& context);

}  // namespace neuroshard
