#include "common/rpc/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace neuroshard {
namespace {

// Empty: not set.
std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::optional<std::int64_t> Number(const std::string& text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end || number <= 0) return std::nullopt;
  return number;
}

}  // namespace

ServiceManager ServiceManager::FromEnvironment() {
  ServiceManager manager;
  manager.socket_ = Variable("NOTIFY_SOCKET");
  const auto timeout_us = Number(Variable("WATCHDOG_USEC"));
  const std::string process = Variable("WATCHDOG_PID");
  if (timeout_us.has_value() && (process.empty() || Number(process) == getpid())) {
    manager.period_ = std::chrono::milliseconds(std::max<std::int64_t>(1, *timeout_us / 2000));
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
