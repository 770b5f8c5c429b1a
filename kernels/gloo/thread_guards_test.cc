#include "kernels/gloo/thread_guards.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
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

void WriteToClosedPipe() {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  EXPECT_EQ(write(ends[1], "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
  close(ends[1]);
}

TEST(SigpipeGuardTest, WriteToAClosedPipeIsOnlyAnError) {
  for (int i = 0; i < 2; ++i) {
    const SigpipeGuard guard;
    WriteToClosedPipe();
  }
}

TEST(SigpipeGuardTest, RestoresTheMaskAndLeavesNothingPending) {
  {
    const SigpipeGuard guard;
    WriteToClosedPipe();
  }
  sigset_t mask, pending;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  sigpending(&pending);
  EXPECT_EQ(sigismember(&mask, SIGPIPE), 0);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
}

}  // namespace
}  // namespace neuroshard
