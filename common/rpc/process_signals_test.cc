#include "common/rpc/process_signals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>

#include "common/rpc/rpc_server.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::IsOk;
using ::testing::Eq;
using ::testing::Optional;

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

// The manager's end: a datagram socket with a name, and the variables that say so.
class ServiceManagerTest : public ::testing::Test {
 protected:
  void Listen(const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    if (name[0] == '@') address.sun_path[0] = '\0';
    fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const std::size_t length = offsetof(sockaddr_un, sun_path) + name.size();
    ASSERT_EQ(
        bind(fd_, reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(length)), 0);
    const timeval patience{60, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
  }
  void Forget() {
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) unsetenv(name);
  }
  void SetUp() override {
    Forget();
    name_ = ::testing::TempDir() + "notify." + std::to_string(getpid());
  }
  void TearDown() override {
    Forget();
    if (fd_ >= 0) close(fd_);
    std::filesystem::remove(name_);
  }

  std::string Told() {
    char text[256];
    const ssize_t size = recv(fd_, text, sizeof(text), 0);
    return size < 0 ? "nothing" : std::string(text, static_cast<std::size_t>(size));
  }

  std::string name_;
  int fd_ = -1;
};

TEST_F(ServiceManagerTest, TellsNobodyWhenNobodyAsked) {
  const ServiceManager manager = ServiceManager::FromEnvironment();
  manager.Tell("READY=1");
  EXPECT_EQ(manager.watchdog_period(), std::nullopt);
}

TEST_F(ServiceManagerTest, TellsASocketOfEitherKind) {
  for (const std::string& name : {name_, "@neuroshard-notify-" + std::to_string(getpid())}) {
    Listen(name);
    setenv("WATCHDOG_USEC", "30000000", 1);
    setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
    const ServiceManager manager = ServiceManager::FromEnvironment();
    manager.Tell("READY=1");
    EXPECT_EQ(Told(), "READY=1");
    EXPECT_THAT(manager.watchdog_period(), Optional(Eq(std::chrono::seconds(15))));
    close(fd_);
  }
}

TEST_F(ServiceManagerTest, TheWatchdogOfAnotherProcessOrANumberThatIsNoneIsNotOurs) {
  for (const auto& [timeout_us, process] : {std::pair{"30000000", "1"},
                                            {"soon", ""},
                                            {"-5", ""},
                                            {"0", ""},
                                            {"99999999999999999999", ""}}) {
    setenv("WATCHDOG_USEC", timeout_us, 1);
    setenv("WATCHDOG_PID", process, 1);
    EXPECT_EQ(ServiceManager::FromEnvironment().watchdog_period(), std::nullopt) << timeout_us;
  }
}

TEST_F(ServiceManagerTest, AServerSaysThatItServesThatItIsAliveAndThatItStops) {
  Listen(name_);
  setenv("WATCHDOG_USEC", "40000", 1);
  const SteadyClock clock;
  prometheus::Registry registry;
  RpcMetrics metrics(registry);
  const auto logger = Logger::Create({.level = "off"});
  RpcGate gate(2, clock, metrics, **logger);
  const auto server = RpcServer::Start({}, {}, gate);
  ASSERT_THAT(server, IsOk());
  std::thread waiting([&] { (*server)->Wait(); });
  EXPECT_EQ(Told(), "READY=1");
  EXPECT_EQ(Told(), "WATCHDOG=1");
  EXPECT_EQ(Told(), "WATCHDOG=1");
  (*server)->RequestDrain();
  std::string last = Told();
  while (last == "WATCHDOG=1") last = Told();
  EXPECT_EQ(last, "STOPPING=1");
  waiting.join();
}

}  // namespace
}  // namespace neuroshard
