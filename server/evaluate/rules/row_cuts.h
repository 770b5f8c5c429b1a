// Row cuts: how the rules of a request have row_wise cut its tables.
#pragma once

#include <vector>

#include "common/domain/plan_request.h"
#include "common/domain/shard_layout.h"

namespace neuroshard {

// By table; several rules that name one all hold. O(tables + what the constraints list).
class RowCuts {
 public:
  explicit RowCuts(const PlanRequest& request);

  const RowCut& of(int table) const {
    return cuts_.empty() ? even_ : cuts_[static_cast<std::size_t>(table)];
  }

 private:
  RowCut even_;
  std::vector<RowCut> cuts_;  // empty where no rule asks for any
};

}  // namespace neuroshard
