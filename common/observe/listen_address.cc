#include "common/observe/listen_address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "common/base/ip_network.h"
#include "common/base/number_text.h"

namespace neuroshard {
namespace {

// The port of an IP address, as it is on the wire.
in_port_t& PortOf(SocketAddress& address) {
  return address.storage.ss_family == AF_INET6
             ? reinterpret_cast<sockaddr_in6&>(address.storage).sin6_port
             : reinterpret_cast<sockaddr_in&>(address.storage).sin_port;
}

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

StatusOr<AddressList> Resolve(const ListenAddress& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) return Unavailable("{}", gai_strerror(error));
  return AddressList(found, &freeaddrinfo);
}

bool IsUnix(const ListenAddress& address) { return address.host.starts_with(kUnixPrefix); }

StatusOr<std::vector<ListeningSocket>> ListenOnFile(const ListenAddress& address) {
  sockaddr_un name{.sun_family = AF_UNIX, .sun_path = {}};
  address.host.copy(name.sun_path, sizeof name.sun_path - 1, kUnixPrefix.size());
  FileDescriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // The mode of the socket is that of its file from the moment that there is one.
  if (!fd.open() || fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0 ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0) {
    return Unavailable("{}", std::strerror(errno));
  }
  std::vector<ListeningSocket> sockets;
  sockets.push_back({std::move(fd), address});
  return sockets;
}

// Returns a socket on one of the addresses of `host`. On failure it is not open, and errno says why.
ListeningSocket Listen(const addrinfo& address, const std::string& host, int port) {
  FileDescriptor fd(socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                           address.ai_protocol));
  SocketAddress name{.length = address.ai_addrlen};
  std::memcpy(&name.storage, address.ai_addr, address.ai_addrlen);
  PortOf(name) = htons(static_cast<std::uint16_t>(port));
  const int on = 1;
  // Without SO_REUSEADDR a port in TIME_WAIT would look taken.
  if (!fd.open() || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(fd.get(), &name.get(), name.length) != 0 || listen(fd.get(), SOMAXCONN) != 0) {
    const int error = errno;
    fd.Close();
    errno = error;
  } else {
    getsockname(fd.get(), &name.get(), &name.length);
  }
  return {std::move(fd), {host, ntohs(PortOf(name))}};
}

}  // namespace

StatusOr<ListenAddress> ParseListenAddress(const std::string& text) {
  const auto malformed = [&text](const char* why) {
    return InvalidArgument("\"{}\" is not HOST:PORT: {}", text, why);
  };
  if (text.starts_with(kUnixPrefix)) {
    constexpr std::size_t kMaxBytes = sizeof(sockaddr_un::sun_path) - 1;
    const std::size_t num_bytes = text.size() - kUnixPrefix.size();
    if (num_bytes > kMaxBytes) {
      return InvalidArgument("\"{}\": the path of a Unix socket may have {} bytes, and this has {}",
                             text, kMaxBytes, num_bytes);
    }
    if (text.find('/') == kUnixPrefix.size()) return ListenAddress{text};
    return InvalidArgument("\"{}\" is not unix:/PATH: the path must be absolute", text);
  }
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return malformed("there is no port");
  ListenAddress address{text.substr(0, colon)};
  if (address.host.size() >= 2 && address.host.front() == '[' && address.host.back() == ']') {
    address.host = address.host.substr(1, address.host.size() - 2);
  } else if (address.host.find(':') != std::string::npos) {
    return malformed("an IPv6 host needs brackets");
  }
  if (address.host.empty()) return malformed("there is no host (use 0.0.0.0 for every interface)");
  address.port = NumberOf<int>(std::string_view(text).substr(colon + 1)).value_or(-1);
  if (address.port < 0 || address.port > 65535) {
    return malformed("the port must be in [0, 65535]");
  }
  return address;
}

std::string ToText(const ListenAddress& address) {
  if (IsUnix(address)) return address.host;
  return address.host.find(':') == std::string::npos
             ? fmt::format("{}:{}", address.host, address.port)
             : fmt::format("[{}]:{}", address.host, address.port);
}

StatusOr<bool> IsLoopback(const ListenAddress& address) {
  if (IsUnix(address)) return true;
  NS_ASSIGN_OR_RETURN(const AddressList found, Resolve(address));
  const std::vector<IpNetwork> loopback = {*IpNetwork::Parse("127.0.0.0/8"),
                                           *IpNetwork::Parse("::1")};
  for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
    if (!AnyContains(loopback, *one->ai_addr)) return false;
  }
  return true;
}

StatusOr<ListeningSocket> ListenOn(const ListenAddress& address) {
  NS_ASSIGN_OR_RETURN(const AddressList found, Resolve(address));
  std::string reason = "no address";
  for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
    ListeningSocket socket = Listen(*one, address.host, address.port);
    if (socket.fd.open()) return socket;
    reason = std::strerror(errno);
  }
  return Unavailable("{}", reason);
}

StatusOr<std::vector<ListeningSocket>> ListenOnEach(const ListenAddress& address) {
  if (IsUnix(address)) return ListenOnFile(address);
  NS_ASSIGN_OR_RETURN(const AddressList found, Resolve(address));
  std::vector<ListeningSocket> sockets;
  std::string reason = "no address";
  bool taken = false;
  for (const addrinfo* one = found.get(); one != nullptr && !taken; one = one->ai_next) {
    ListeningSocket socket =
        Listen(*one, address.host, sockets.empty() ? address.port : sockets.front().address.port);
    if (socket.fd.open()) {
      sockets.push_back(std::move(socket));
      continue;
    }
    reason = std::strerror(errno);
    // A port that the system chose for the first address may be taken on another one.
    taken = errno == EADDRINUSE && address.port != 0;
  }
  if (!taken && !sockets.empty()) return sockets;
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
  if (socket.ok()) return;
  faults.Add(std::string(key), "cannot listen on {}: {}", address, Message(socket.status()));
}

bool IsInUse(const Violation& fault) {
  return fault.description.ends_with(std::strerror(EADDRINUSE));
}

}  // namespace neuroshard
