// Timekeeper: a clock that can also be waited for, to the microsecond.
#pragma once

#include "common/base/clock.h"
#include "common/base/stop_signal.h"

namespace neuroshard {

// A clock that can be waited for, so that ranks begin an exchange together. Safe for concurrent
// use.
class Timekeeper : public Clock {
 public:
  // Returns at `target`, or a little earlier when `stop` stops.
  virtual void WaitUntil(TimePoint target, const StopSignal& stop) const = 0;
};

// Sleeps until shortly before the target and spins the rest: the system wakes a sleeper up to some
// 100 us late, which would be as long as a small collective.
class SteadyTimekeeper final : public Timekeeper {
 public:
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
  void WaitUntil(TimePoint target, const StopSignal& stop) const override;
};

}  // namespace neuroshard
