// Row cuts: how the rules of a request have row_wise cut its tables.
#pragma once

#include <cstdint>
#include <vector>

#include "common/domain/plan_request.h"
#include "common/domain/shard_layout.h"

namespace neuroshard {

// By rank, 0 or more: bytes of its device less the reserve (or Constraints::memory_weights), or its
// compute_speed in units of 2^-40.
std::vector<std::int64_t> RowWeights(const PlanRequest& request, RowProportion proportion);

// Keeps the blocks of `request`, where its rules have them in proportion to memory, as they are with
// the devices of `original`, whatever its own have or will have.
void KeepRowWeights(const PlanRequest& original, PlanRequest& request);

// By table; several rules that name one all hold: buckets of their least common multiple, and of
// two proportions none (RowCut::contradictory). O(tables + ranks + what the constraints list).
class RowCuts {
 public:
  explicit RowCuts(const PlanRequest& request);

  const RowCut& of(int table) const { return cuts_.empty() ? even_ : At(cuts_, table); }

 private:
  RowCut even_;
  std::vector<RowCut> cuts_;  // empty where no rule asks for any
};

}  // namespace neuroshard
