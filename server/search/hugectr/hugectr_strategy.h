// `hugectr_auto`: the plan of HugeCTR's DLRM planner.
#pragma once

#include "server/search/core/strategy.h"

namespace neuroshard {

// The cheapest candidate of HugeCtrPlanner (the first of equals), with pooling factors as hotness;
// buckets are ranks (`auto`) or, with search.hugectr.hierarchical, hosts (`hier_auto`), where a
// table is cut over all ranks of its hosts. Memory follows the request's rule with each rank's own
// capacity. Replicated tables become data_parallel, a single shard table_wise, rows over several
// ranks row_wise_subset, also where that is all ranks: it has HugeCTR's blocks of rows.
//
// INVALID_ARGUMENT (violation at search.hugectr.hierarchical): hierarchical needs two hosts or
// more, all with as many ranks. FAILED_PRECONDITION, proving nothing: no candidate fits.
class HugeCtrStrategy final : public Strategy {
 public:
  Status Search(SearchContext& context) const override;
};

}  // namespace neuroshard
