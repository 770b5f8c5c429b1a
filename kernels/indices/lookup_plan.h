// The ids of one table for one batch, not made yet: a few KiB however many they are.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/indices/lookup_batch.h"
#include "kernels/indices/lookup_rule.h"

namespace neuroshard {

// Made by the planners of lookup_generator.h.
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
