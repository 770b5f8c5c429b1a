#include "common/rpc/process_signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
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

bool BlocksCaughtSignals() {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGINT) == 1 &&
         sigismember(&mask, SIGHUP) == 1;
}

TEST(ProcessSignalsTest, SignalsReachTheHandlers) {
  CatchProcessSignals();
  Counter terminations;
  Counter hangups;
  {
    const SignalThread signals(
        {.on_terminate = [&] { terminations.Count(); }, .on_hangup = [&] { hangups.Count(); }});
    kill(getpid(), SIGHUP);
    hangups.WaitFor(1);
    kill(getpid(), SIGTERM);
    terminations.WaitFor(1);
  }
  // The next one serves what came in between.
  kill(getpid(), SIGHUP);
  const SignalThread again({.on_terminate = {}, .on_hangup = [&] { hangups.Count(); }});
  hangups.WaitFor(2);
}

TEST(ProcessSignalsTest, AThreadThatALibraryStartedBeforeMainHandsThemOn) {
  CatchProcessSignals();
  Counter hangups;
  const SignalThread signals({.on_terminate = {}, .on_hangup = [&] { hangups.Count(); }});
  std::thread([] {
    sigset_t nothing;
    sigemptyset(&nothing);
    pthread_sigmask(SIG_SETMASK, &nothing, nullptr);
    raise(SIGHUP);
  }).join();
  hangups.WaitFor(1);
}

TEST(ProcessSignalsTest, OtherThreadsDoNotTakeThem) {
  CatchProcessSignals();
  EXPECT_TRUE(BlocksCaughtSignals());
  bool blocks = false;
  std::thread([&] { blocks = BlocksCaughtSignals(); }).join();
  EXPECT_TRUE(blocks);
}

// Fails by not ending, under ThreadSanitizer, when the main thread takes the signal: the handler is
// put off until the thread does something that ThreadSanitizer sees. It sees no system call that is
// made directly, which is how most threads of gRPC wait.
TEST(ProcessSignalsTest, AMainThreadThatSleepsHoldsNothingUp) {
  CatchProcessSignals();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  {
    const SignalThread signals(
        {.on_terminate = {}, .on_hangup = [&] { EXPECT_EQ(write(ends[1], "x", 1), 1); }});
    std::atomic<bool> sleeping = false;
    std::thread sender([&] {
      while (!sleeping) std::this_thread::yield();
      kill(getpid(), SIGHUP);
    });
    char byte = 0;
    sleeping = true;
    EXPECT_EQ(syscall(SYS_read, ends[0], &byte, 1), 1);
    sender.join();
  }
  for (const int end : ends) close(end);
}

TEST(ProcessSignalsDeathTest, TheSecondTerminationEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        CatchProcessSignals();
        const SignalThread signals(
            {.on_terminate = [] { kill(getpid(), SIGINT); }, .on_hangup = {}});
        kill(getpid(), SIGTERM);
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
