// Messages to the service manager that started this process (systemd): sd_notify(3), which is one
// datagram a message and needs no library.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace neuroshard {

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
