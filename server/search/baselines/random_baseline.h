// NeuroShard's weakest baseline.
#pragma once

#include "server/search/core/strategy.h"

namespace neuroshard {

// Whole tables in the request's order, each to a rank drawn uniformly, by the request's seed, from
// those with room for it. Where a table finds no room, the placement is given up for FindPacking's.
class RandomBaseline final : public Strategy {
 public:
  Status Search(SearchContext& context) const override;
};

}  // namespace neuroshard
