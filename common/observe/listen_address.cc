#include "common/observe/listen_address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

namespace neuroshard {
namespace {

int BoundPort(int fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return bound.ss_family == AF_INET6
             ? ntohs(reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port)
             : ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
}

}  // namespace

StatusOr<ListenAddress> ParseListenAddress(const std::string& text) {
  const auto malformed = [&text](const char* why) {
    return InvalidArgument("\"{}\" is not HOST:PORT: {}", text, why);
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return malformed("there is no port");
  ListenAddress address{text.substr(0, colon)};
  if (address.host.size() >= 2 && address.host.front() == '[' && address.host.back() == ']') {
    address.host = address.host.substr(1, address.host.size() - 2);
  } else if (address.host.find(':') != std::string::npos) {
    return malformed("an IPv6 host needs brackets");
  }
  if (address.host.empty()) return malformed("there is no host (use 0.0.0.0 for every interface)");
  const char* const begin = text.data() + colon + 1;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, address.port);
  if (error != std::errc() || stop != end || address.port < 0 || address.port > 65535) {
    return malformed("the port must be in [0, 65535]");
  }
  return address;
}

std::string ToText(const ListenAddress& address) {
  return address.host.find(':') == std::string::npos
             ? fmt::format("{}:{}", address.host, address.port)
             : fmt::format("[{}]:{}", address.host, address.port);
}

StatusOr<ListeningSocket> ListenOn(const ListenAddress& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) return Unavailable("{}", gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  std::string reason = "no address";
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    const int fd = socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol);
    // Without SO_REUSEADDR a port in TIME_WAIT would look taken.
    const int on = 1;
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(fd, one->ai_addr, one->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) {
      return ListeningSocket{fd, {address.host, BoundPort(fd)}};
    }
    reason = std::strerror(errno);
    if (fd >= 0) close(fd);
  }
  return Unavailable("{}", reason);
}

void ReadListenAddress(ConfigReader& reader, std::string_view key, EmptyAddress empty,
                       std::string* address) {
  reader.Read(key, address);
  if (address->empty() && empty == EmptyAddress::kMeansNone) return;
  if (const auto parsed = ParseListenAddress(*address); !parsed.ok()) {
    reader.AddViolation(key, Message(parsed.status()));
  }
}

void AddFaultIfTaken(std::string_view key, const std::string& address, Violations& faults) {
  const auto parsed = ParseListenAddress(address);
  if (!parsed.ok() || parsed->port == 0) return;
  const auto socket = ListenOn(*parsed);
  if (socket.ok()) {
    close(socket->fd);
    return;
  }
  faults.Add(std::string(key),
             fmt::format("cannot listen on {}: {}", address, Message(socket.status())));
}

std::string WhyNotListening(const ListenAddress& address) {
  const auto socket = ListenOn(address);
  if (!socket.ok()) return Message(socket.status());
  close(socket->fd);
  return "unknown reason";
}

}  // namespace neuroshard
