// Interface of a search strategy.
#pragma once

#include "common/base/status.h"
#include "server/search/core/search_context.h"

namespace neuroshard {

// A search strategy. Stateless and thread-safe: one object may serve any number of searches.
//
// An implementation
// 1. gives every plan that beats its earlier ones to SearchContext::Improve, the first as early as
//    it can; each is legal;
// 2. polls ShouldStop at every step and, once it is true, returns OK without further work, with or
//    without a plan;
// 3. returns FAILED_PRECONDITION when it has no plan, with a reason that says whether it is proven;
// 4. depends on nothing but the context: no clock, no randomness but the request's seed.
class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual Status Search(SearchContext& context) const = 0;
};

}  // namespace neuroshard
