// The ids of one table for one batch, as a list, or not made yet: a few KiB however many they are.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/indices/lookup_rule.h"

namespace neuroshard {

// The ids of one table for one batch in CSR form: sample b owns ids[offsets[b] .. offsets[b + 1]).
struct LookupBatch {
  std::vector<std::int64_t> ids;      // each in [0, rows)
  std::vector<std::int64_t> offsets;  // batch_size + 1 entries, the first 0
  std::vector<float> weights;         // one an id, or empty for unweighted
};

// A batch that is not made yet: the rule of its ids, with the memory that the rule reads. Made by
// the planners of lookup_generator.h.
struct LookupPlan {
  std::int64_t rows = 1;
  bool weighted = false;
  LookupRule rule;  // without its runs
  std::vector<RankRun> runs;

  // The rule with a copy of `runs` where it is to be used.
  LookupRule RuleWith(const RankRun* runs_there) const;
};

// The batch, made here.
LookupBatch ExpandLookups(const LookupPlan& plan);

}  // namespace neuroshard
