// Process signals: SIGTERM, SIGINT and SIGHUP are handled on a thread, because a signal handler may
// not take locks and a server's shutdown does.
//
// All threads block the signals but that one, which takes them while it waits. Through a handler
// and a pipe rather than sigwait: libraries start threads before main (OpenBLAS does), which no
// mask set in main reaches, and a signal that is delivered to one of them would end the process.
//
// Messages to the service manager that started this process (systemd): sd_notify(3), which is one
// datagram a message and needs no library.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>

namespace neuroshard {

// First thing in main: from now on the signals are kept for SignalThread instead of ending the
// process. Blocks them in this thread and so in all that it starts later. Also ignores SIGPIPE, so
// that a peer that goes away is an error of a write and not the end of the process. Process-wide;
// calls after the first change nothing.
void CatchProcessSignals();

// What a program does on a signal. Called on the signal thread, one at a time.
struct SignalHandlers {
  std::function<void()> on_terminate;  // first SIGTERM or SIGINT
  std::function<void()> on_hangup;     // every SIGHUP; may be empty
};

// Calls the handlers from its own thread, first for the signals that came since
// CatchProcessSignals, which must have been called (several of one kind may have become one). The
// second SIGTERM or SIGINT ends the process at once with 128 + the signal's number. One at a time.
class SignalThread {
 public:
  explicit SignalThread(SignalHandlers handlers);
  ~SignalThread();

  SignalThread(SignalThread&&) = delete;

 private:
  void Run();

  const SignalHandlers handlers_;
  std::thread thread_;
};

// Copyable; every method may be called by any thread. Where nobody asked to be told, all do
// nothing.
class ServiceManager {
 public:
  // Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID.
  static ServiceManager FromEnvironment();

  // "READY=1", "STOPPING=1" or "WATCHDOG=1". A manager that is gone is no error: nothing can be
  // done.
  void Tell(const std::string& message) const;

  // How often the manager is to be told that all is well, half of the time after which it ends this
  // process; none: it does not wait for that.
  const std::optional<std::chrono::milliseconds>& watchdog_period() const { return period_; }

 private:
  std::string socket_;  // empty: nobody listens
  std::optional<std::chrono::milliseconds> period_;
};

}  // namespace neuroshard
