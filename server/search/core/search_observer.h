// Observers of a search, such as a stream to the caller or a time budget.
#pragma once

#include "server/search/core/search_result.h"

namespace neuroshard {

// Observes a search, or whatever passes on its results with more in them. It is called on the
// searching thread between steps, so it must be quick.
template <typename Result>
class ObserverOf {
 public:
  virtual ~ObserverOf() = default;

  // Reports the first legal plan, or one that is cheaper than all before; the search's final result
  // is always the plan of the last call (statistics go on counting). From the first call on a stop
  // still leaves an answer: a time budget for the optimization starts its clock here, and its
  // StopSignal is false before.
  virtual void OnImprovement(const Result& result) = 0;

  // Reports the share of the search that is done, in [0, 1] and not decreasing, at every step (tens
  // of thousands per second), so observers must sample.
  virtual void OnProgress(double share) = 0;
};
using SearchObserver = ObserverOf<SearchResult>;

}  // namespace neuroshard
