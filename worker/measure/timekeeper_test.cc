#include "worker/measure/timekeeper.h"

#include <gtest/gtest.h>

namespace neuroshard {
namespace {

TEST(TimekeeperTest, NeverReturnsBeforeTheTarget) {
  const SteadyTimekeeper time;
  const NeverStop never;
  for (const std::chrono::microseconds delay :
       {std::chrono::microseconds(-5), std::chrono::microseconds(0), std::chrono::microseconds(50),
        std::chrono::microseconds(2000)}) {
    const TimePoint target = time.Now() + delay;
    time.WaitUntil(target, never);
    EXPECT_GE(time.Now(), target);
  }
}

TEST(TimekeeperTest, AStopEndsTheWait) {
  const SteadyTimekeeper time;
  ManualStop stop;
  stop.Stop();
  const TimePoint target = time.Now() + std::chrono::hours(1);
  time.WaitUntil(target, stop);
  EXPECT_LT(time.Now(), target);
}

}  // namespace
}  // namespace neuroshard
