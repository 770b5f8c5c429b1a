#include "kernels/gloo/sigpipe_guard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

namespace neuroshard {
namespace {

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
