#include "common/rpc/call_stop.h"

#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/fake_clock.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::FakeClock;

// A fresh ServerContext has a deadline in the infinite future and nobody to cancel it.
TEST(CallStopTest, WithoutADeadlineOnlyTheDrainStops) {
  grpc::ServerContext context;
  ManualStop draining;
  FakeClock clock;
  const CallStop stop(context, draining, clock);
  EXPECT_FALSE(stop.stop_at().has_value());
  clock.Advance(std::chrono::hours(1000));
  EXPECT_FALSE(stop.deadline_reached());
  EXPECT_FALSE(draining.ShouldStop());
  draining.Stop();
  EXPECT_TRUE(stop.ShouldStop());
  EXPECT_FALSE(stop.deadline_reached());
}

TEST(CallStopTest, TheServersLimitHoldsWithoutADeadline) {
  grpc::ServerContext context;
  const NeverStop draining;
  FakeClock clock;
  const CallStop stop(context, draining, clock, std::chrono::milliseconds(50));
  clock.Advance(std::chrono::milliseconds(49));
  EXPECT_FALSE(stop.deadline_reached());
  clock.Advance(std::chrono::milliseconds(1));
  EXPECT_TRUE(stop.deadline_reached());
  EXPECT_TRUE(stop.ShouldStop());
}

}  // namespace
}  // namespace neuroshard
