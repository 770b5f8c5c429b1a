#include "kernels/gloo/background_threads.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace neuroshard {
namespace {

int PolicyOfANewThread() {
  int policy = -1;
  std::thread([&policy] { policy = sched_getscheduler(0); }).join();
  return policy;
}

TEST(BackgroundThreadsTest, AppliesToThreadsThatAreStartedMeanwhile) {
  if (sched_getscheduler(0) != SCHED_OTHER) GTEST_SKIP() << "not run with the default policy";
  {
    const BackgroundThreads guard;
    EXPECT_EQ(PolicyOfANewThread(), SCHED_BATCH);
  }
  EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER);
  EXPECT_EQ(PolicyOfANewThread(), SCHED_OTHER);
}

}  // namespace
}  // namespace neuroshard
