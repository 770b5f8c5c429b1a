// RetryPacer: when the callers that a full server refuses should come back.
#pragma once

#include <chrono>

#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace neuroshard {

// Told the same delay, refused callers would return together, and what they ask of the server would
// grow with their number. So each gets a time of its own, evenly behind those of the others: the
// delay grows with how many wait, and the server refuses a bounded number of calls a second. The
// distance follows the calls that end, kReturnsPerEnd returns for each, so that what becomes free
// is taken at once. Thread-safe, O(1). `clock` must outlive this.
class RetryPacer {
 public:
  // About when half of the searches of a busy server have ended.
  static constexpr std::chrono::milliseconds kShortest{250};
  // Where more callers wait than fit into this time, returns go on from kShortest between those
  // that are expected already. It bounds as well what a caller gains or loses by others that never
  // come back.
  static constexpr std::chrono::milliseconds kLongest{10'000};

  explicit RetryPacer(const Clock& clock);

  // How long the call that is refused now should wait.
  std::chrono::milliseconds Next();
  // A call that was not refused has ended.
  void CallEnded();

 private:
  const Clock& clock_;
  Mutex mutex_;
  TimePoint last_return_ NS_GUARDED_BY(mutex_);
  TimePoint last_end_ NS_GUARDED_BY(mutex_);
  TimePoint::duration between_ends_ NS_GUARDED_BY(mutex_);  // running mean
};

}  // namespace neuroshard
