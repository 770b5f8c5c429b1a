// `refine`: the best plan of the other strategies, improved by local search for as long as it may.
#pragma once

#include "server/search/core/strategy.h"

namespace neuroshard {

// Never dearer than `neuroshard` up to the sizes that README.md gives. Obeys constraints and starts
// from a previous plan.
class RefineStrategy final : public Strategy {
 public:
  Status Search(SearchContext& context) const override;
};

}  // namespace neuroshard
