// Timekeeper: a clock that can also be waited for, to the microsecond.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

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
  void WaitUntil(TimePoint target, const StopSignal& stop) const override {
    // Long enough for the default timer slack (50 us) and a wake-up; short, because ranks may
    // outnumber cores and a spinning one then takes time from the others.
    constexpr std::chrono::microseconds kSpin{300};
    // How late a stop is noticed.
    constexpr std::chrono::milliseconds kLongestSleep{20};
    while (!stop.ShouldStop()) {
      const TimePoint now = Now();
      if (now + kSpin >= target) break;
      std::this_thread::sleep_for(
          std::min<std::chrono::nanoseconds>(target - kSpin - now, kLongestSleep));
    }
    while (Now() < target && !stop.ShouldStop()) {
    }
  }
};

}  // namespace neuroshard
