#include "common/rpc/process_signals.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "common/base/number_text.h"

namespace neuroshard {
namespace {

// The one thing that a handler can reach. Written once, before the handlers are installed.
int g_pipe[2] = {-1, -1};

// Ends a SignalThread; no signal has this number.
constexpr unsigned char kStop = 0;

constexpr int kCaught[] = {SIGTERM, SIGINT, SIGHUP};

// Async-signal-safe.
void Forward(int number) {
  const int saved = errno;
  const auto byte = static_cast<unsigned char>(number);
  // A full pipe has thousands of signals waiting already; one more says nothing new.
  [[maybe_unused]] const ssize_t written = write(g_pipe[1], &byte, 1);
  errno = saved;
}

// Empty: not set.
std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

void CatchProcessSignals() {
  if (g_pipe[0] >= 0) return;
  if (pipe2(g_pipe, O_CLOEXEC) != 0) std::abort();
  fcntl(g_pipe[1], F_SETFL, O_NONBLOCK);
  struct sigaction action {};
  action.sa_handler = Forward;
  action.sa_flags = SA_RESTART;
  sigfillset(&action.sa_mask);
  sigset_t caught;
  sigemptyset(&caught);
  for (const int number : kCaught) {
    sigaction(number, &action, nullptr);
    sigaddset(&caught, number);
  }
  pthread_sigmask(SIG_BLOCK, &caught, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

SignalThread::SignalThread(SignalHandlers handlers)
    : handlers_(std::move(handlers)), thread_([this] { Run(); }) {}

SignalThread::~SignalThread() {
  Forward(kStop);
  thread_.join();
}

void SignalThread::Run() {
  sigset_t mask_of_wait;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask_of_wait);
  for (const int number : kCaught) sigdelset(&mask_of_wait, number);
  bool terminating = false;
  while (true) {
    // Lets the signals in, which nothing else does. (Under ThreadSanitizer a signal outside of
    // ppoll may be handled late or never; common/DECISIONS.md.)
    pollfd polled{g_pipe[0], POLLIN, 0};
    if (ppoll(&polled, 1, nullptr, &mask_of_wait) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    unsigned char number = kStop;
    if (read(g_pipe[0], &number, 1) != 1 || number == kStop) return;
    if (number == SIGHUP) {
      if (handlers_.on_hangup) handlers_.on_hangup();
      continue;
    }
    if (terminating) std::_Exit(128 + number);
    terminating = true;
    if (handlers_.on_terminate) handlers_.on_terminate();
  }
}

ServiceManager ServiceManager::FromEnvironment() {
  ServiceManager manager;
  manager.socket_ = Variable("NOTIFY_SOCKET");
  const std::int64_t timeout_us = NumberOf<std::int64_t>(Variable("WATCHDOG_USEC")).value_or(0);
  const std::string process = Variable("WATCHDOG_PID");
  if (timeout_us > 0 && (process.empty() || NumberOf<std::int64_t>(process) == getpid())) {
    manager.period_ = std::chrono::milliseconds(std::max<std::int64_t>(1, timeout_us / 2000));
  }
  return manager;
}

void ServiceManager::Tell(const std::string& message) const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_.empty() || socket_.size() >= sizeof(address.sun_path)) return;
  std::memcpy(address.sun_path, socket_.data(), socket_.size());
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';  // of the abstract namespace
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  const std::size_t length = offsetof(sockaddr_un, sun_path) + socket_.size();
  sendto(fd, message.data(), message.size(), MSG_NOSIGNAL,
         reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(length));
  close(fd);
}

}  // namespace neuroshard
