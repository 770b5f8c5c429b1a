// Clock: the time as an injected interface, so that tests control it.
#pragma once

#include <chrono>
#include <cstdint>

namespace neuroshard {

using TimePoint = std::chrono::steady_clock::time_point;

// A monotonic clock. Whatever measures or waits is given one, so that tests can move its time.
// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
};

// The clock of programs: std::chrono::steady_clock.
class SteadyClock final : public Clock {
 public:
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
};

// The wall clock, in ms since 1970; it may jump.
inline std::int64_t UnixMillisecondsNow() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

inline double MillisecondsBetween(TimePoint begin, TimePoint end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

}  // namespace neuroshard
