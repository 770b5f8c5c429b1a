// A clock that moves only when told.
#pragma once

#include <atomic>
#include <chrono>

#include "common/base/clock.h"

namespace neuroshard::testing {

// Safe for concurrent use.
class FakeClock final : public Clock {
 public:
  TimePoint Now() const override {
    return TimePoint(std::chrono::nanoseconds(now_ns_.load(std::memory_order_relaxed)));
  }
  void Advance(std::chrono::nanoseconds by) {
    now_ns_.fetch_add(by.count(), std::memory_order_relaxed);
  }

 private:
  std::atomic<std::int64_t> now_ns_{1'000'000'000};
};

}  // namespace neuroshard::testing
