#include "worker/measure/timekeeper.h"

#include <algorithm>
#include <thread>

namespace neuroshard {
namespace {

// Long enough for the default timer slack (50 us) and a wake-up; short, because ranks may outnumber
// cores and a spinning one then takes time from the others.
constexpr std::chrono::microseconds kSpin{300};
// How late a stop is noticed.
constexpr std::chrono::milliseconds kLongestSleep{20};

}  // namespace

void SteadyTimekeeper::WaitUntil(TimePoint target, const StopSignal& stop) const {
  while (!stop.ShouldStop()) {
    const TimePoint now = Now();
    if (now + kSpin >= target) break;
    std::this_thread::sleep_for(
        std::min<std::chrono::nanoseconds>(target - kSpin - now, kLongestSleep));
  }
  while (Now() < target && !stop.ShouldStop()) {
  }
}

}  // namespace neuroshard
