// Least demand: what a table takes at the least in any plan that keeps the rules.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/domain/plan_request.h"
#include "server/evaluate/rules/compiled_rules.h"

namespace neuroshard {

// Sums of bytes in proofs stop here, at "more than anything": two of them add up inside int64.
inline constexpr std::int64_t kMaxFlow = std::int64_t{1} << 61;
inline std::int64_t CappedSum(std::int64_t a, std::int64_t b) { return std::min(kMaxFlow, a + b); }

// Bounds over all layouts that are left to the table; each holds by itself, no one layout need meet
// all of them.
struct LeastDemand {
  // Types of TableRules that have a layout of which each shard fits into an allowed rank that is
  // otherwise empty. Empty: there is none, and the rest means nothing.
  TypeSet types;
  int ranks = 0;           // with a shard of the table
  int shards = 0;          // a plan lists
  std::int64_t bytes = 0;  // on all ranks together
  std::int64_t piece = 0;  // of the largest shard
  // Filled if all of `types` take every rank: bytes on each of them. ranks and shards are then on
  // each rank, too.
  std::vector<std::int64_t> on_each_rank;
};

// By table. available[rank]: bytes that shards may take there; a rank without shards may have any.
std::vector<LeastDemand> LeastDemandsOf(const PlanRequest& request, const CompiledRules& rules,
                                        const std::vector<std::int64_t>& available);

}  // namespace neuroshard
