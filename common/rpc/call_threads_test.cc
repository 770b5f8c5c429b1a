#include "common/rpc/call_threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <set>
#include <thread>

namespace neuroshard {
namespace {

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

}  // namespace
}  // namespace neuroshard
