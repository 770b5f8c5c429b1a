#include "common/rpc/call_threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <mutex>
#include <set>
#include <thread>

#include "tests/support/fake_clock.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::FakeClock;

// Until the test is killed as one that hangs.
constexpr std::chrono::hours kForever{1};

TEST(CallThreadsTest, RunsEverythingOnNoMoreThreadsThanTold) {
  std::mutex mutex;
  std::set<std::thread::id> seen;
  std::atomic<int> done = 0;
  {
    CallThreads threads(3);
    for (int i = 0; i < 1000; ++i) {
      threads.Run([&] {
        const std::lock_guard lock(mutex);
        seen.insert(std::this_thread::get_id());
        ++done;
      });
    }
  }
  EXPECT_EQ(done, 1000) << "the destructor runs what is queued";
  EXPECT_LE(seen.size(), 3U);
  EXPECT_EQ(seen.count(std::this_thread::get_id()), 0U);
}

TEST(CallThreadsTest, TheyAndTheirOwnThreadsYieldToTheProcess) {
  const auto niceness = [] { return getpriority(PRIO_PROCESS, 0); };
  const int own = niceness();
  std::atomic<int> of_work = 0, of_its_thread = 0, of_others = 0;
  {
    CallThreads yielding(1, 3), equal(1);
    yielding.Run([&] {
      of_work = niceness();
      std::jthread([&] { of_its_thread = niceness(); }).join();
    });
    equal.Run([&] { of_others = niceness(); });
  }
  EXPECT_EQ(of_work, std::min(19, own + 3));
  EXPECT_EQ(of_its_thread, std::min(19, own + 3));
  EXPECT_EQ(of_others, own);
  EXPECT_EQ(niceness(), own);
}

TEST(CallThreadsTest, WorkDoesNotWaitWhileThereMayBeMoreThreads) {
  std::latch together(3);  // threads still look at it when this one goes on
  CallThreads threads(3);
  for (int i = 0; i < 3; ++i) threads.Run([&] { together.arrive_and_wait(); });
  together.wait();
}

// A turn is over at once, and nobody goes on without one.
constexpr CallTurns OneAtATime() {
  return {.max_running = 1, .length = std::chrono::milliseconds(0), .max_wait = kForever};
}

TEST(CallThreadsTest, NoMoreRunsAtATimeThanTold) {
  std::atomic<int> running = 0, most = 0, done = 0;
  {
    CallThreads threads(8, 0, {.max_running = 2, .max_wait = kForever});
    for (int i = 0; i < 200; ++i) {
      threads.Run([&] {
        const int now = ++running;
        for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
        }
        std::this_thread::yield();
        --running;
        ++done;
      });
    }
  }
  EXPECT_EQ(done, 200);
  EXPECT_LE(most, 2);
}

TEST(CallThreadsTest, WorkThatGivesWayLetsOthersFinishAndGoesOnAfterwards) {
  std::atomic<int> short_ones = 0, long_ones = 0;
  {
    CallThreads threads(4, 0, OneAtATime());
    for (int i = 0; i < 2; ++i) {
      threads.Run([&] {
        while (short_ones < 2) CallThreads::GiveWay();
        ++long_ones;
      });
    }
    for (int i = 0; i < 2; ++i) threads.Run([&] { ++short_ones; });
  }
  EXPECT_EQ(long_ones, 2);
}

TEST(CallThreadsTest, WorkThatWaitsForSomethingElseHasNoTurnMeanwhile) {
  std::latch other_ran(1);
  CallThreads threads(2, 0, OneAtATime());
  threads.Run([&] {
    const CallThreads::OffTurn off_turn;
    other_ran.wait();
  });
  threads.Run([&] { other_ran.count_down(); });
  other_ran.wait();
}

TEST(CallThreadsTest, WhoWaitsInVainGoesOnRegardless) {
  std::latch other_ran(1);
  CallThreads threads(2, 0, {.max_running = 1, .max_wait = std::chrono::milliseconds(1)});
  threads.Run([&] { other_ran.wait(); });
  threads.Run([&] { other_ran.count_down(); });
  other_ran.wait();
}

TEST(CallThreadsTest, OtherThreadsNeitherGiveWayNorTakeTurns) {
  CallThreads::GiveWay();
  const CallThreads::OffTurn off_turn;
}

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
