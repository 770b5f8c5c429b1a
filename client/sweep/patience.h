// Patience: a limit on the time without any success.
#pragma once

#include <chrono>

#include "client/stub/backoff.h"
#include "client/sweep/stop_latch.h"
#include "common/base/clock.h"

namespace neuroshard {

// Bounded in time since the last success, with growing waits in between. One thread.
class Patience {
 public:
  Patience(const Clock& clock, std::chrono::milliseconds window, Backoff backoff)
      : clock_(clock), window_(window), backoff_(backoff), last_success_(clock.Now()) {}

  void Success() {
    last_success_ = clock_.Now();
    backoff_.Reset();
  }

  // Waits before the next attempt. False: do not try again, the window has passed or the latch was
  // stopped.
  bool WaitToRetry(StopLatch& latch) {
    if (clock_.Now() - last_success_ >= window_) return false;
    return !latch.WaitFor(backoff_.Next());
  }

 private:
  const Clock& clock_;
  const std::chrono::milliseconds window_;
  Backoff backoff_;
  TimePoint last_success_;
};

}  // namespace neuroshard
