#include "common/rpc/process_signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <thread>

namespace neuroshard {
namespace {

class Counter {
 public:
  void Count() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  void WaitFor(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return count_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

TEST(ProcessSignalsTest, SignalsReachTheHandlersWhicheverThreadTakesThem) {
  CatchProcessSignals();
  Counter terminations;
  Counter hangups;
  {
    const SignalThread signals(
        {.on_terminate = [&] { terminations.Count(); }, .on_hangup = [&] { hangups.Count(); }});
    raise(SIGHUP);
    hangups.WaitFor(1);
    std::thread([] { raise(SIGHUP); }).join();
    hangups.WaitFor(2);
    kill(getpid(), SIGTERM);
    terminations.WaitFor(1);
  }
  // The next one serves what came in between.
  raise(SIGHUP);
  const SignalThread again({.on_terminate = {}, .on_hangup = [&] { hangups.Count(); }});
  hangups.WaitFor(3);
}

TEST(ProcessSignalsDeathTest, TheSecondTerminationEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        CatchProcessSignals();
        const SignalThread signals({.on_terminate = [] { raise(SIGINT); }, .on_hangup = {}});
        raise(SIGTERM);
        while (true) pause();
      },
      ::testing::ExitedWithCode(128 + SIGINT), "");
}

TEST(ProcessSignalsTest, APeerThatWentAwayIsAnError) {
  CatchProcessSignals();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  EXPECT_EQ(write(ends[1], "x", 1), -1);
  close(ends[1]);
}

}  // namespace
}  // namespace neuroshard
