// Search observer: whoever watches a search, as a stream to the caller or a time budget does.
#pragma once

#include "server/search/core/search_result.h"

namespace neuroshard {

// Called on the searching thread, between its steps; what the observer does there holds the search
// up. Of searches, and of whoever hands on their results with more in them.
template <typename Result>
class ObserverOf {
 public:
  virtual ~ObserverOf() = default;

  // A first legal plan, or one that is cheaper than all before. The search's final result is always
  // the plan of the last call (statistics go on counting). The first call says that from now on a
  // stop costs no answer: a time budget for the optimisation starts its clock here, and its
  // StopSignal answers false before.
  virtual void OnImprovement(const Result& result) = 0;

  // Share of the search that is done, in [0, 1], not decreasing. Called at every step (tens of
  // thousands a second): thin out.
  virtual void OnProgress(double share) = 0;
};
using SearchObserver = ObserverOf<SearchResult>;

}  // namespace neuroshard
