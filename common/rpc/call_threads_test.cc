#include "common/rpc/call_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <set>

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

TEST(CallThreadsTest, WorkDoesNotWaitWhileThereMayBeMoreThreads) {
  CallThreads threads(3);
  std::latch together(3);
  for (int i = 0; i < 3; ++i) threads.Run([&] { together.arrive_and_wait(); });
  together.wait();
}

}  // namespace
}  // namespace neuroshard
