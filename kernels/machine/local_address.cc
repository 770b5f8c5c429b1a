#include "kernels/machine/local_address.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "common/domain/measurement.h"

namespace neuroshard {
namespace {

bool IsIp(const sockaddr* address) {
  return address != nullptr && (address->sa_family == AF_INET || address->sa_family == AF_INET6);
}

SocketAddress Copy(const sockaddr& address) {
  SocketAddress copy;
  copy.length = address.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&copy.storage, &address, copy.length);
  return copy;
}

using Interfaces = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

Interfaces AllInterfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) first = nullptr;
  return {first, &freeifaddrs};
}

StatusOr<SocketAddress> OfInterface(const std::string& name) {
  const Interfaces interfaces = AllInterfaces();
  for (const ifaddrs* one = interfaces.get(); one != nullptr; one = one->ifa_next) {
    if (name == one->ifa_name && IsIp(one->ifa_addr)) return Copy(*one->ifa_addr);
  }
  return Unavailable("there is no interface {} with an IP address", name);
}

StatusOr<SocketAddress> OfHost(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    return Unavailable("{}: {}", host, gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  std::string reason = "it has no address";
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (!IsIp(one->ai_addr)) continue;
    const int fd = socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool bound = fd >= 0 && bind(fd, one->ai_addr, one->ai_addrlen) == 0;
    if (!bound) reason = std::strerror(errno);
    if (fd >= 0) close(fd);
    if (bound) return Copy(*one->ai_addr);
  }
  return Unavailable("{}: {}", host, reason);
}

}  // namespace

LocalAddress PlaceOf(const SocketAddress& address) {
  sockaddr_in6 all{};
  std::memset(&all, 0xff, sizeof all);
  all.sin6_family = AF_INET6;
  LocalAddress place{address,
                     *IpNetwork::Around(address.get(), reinterpret_cast<const sockaddr&>(all)), ""};
  const IpNetwork ipv4_loopback = *IpNetwork::Parse("127.0.0.0/8");
  const bool loopback = ipv4_loopback.Contains(address.get());
  const Interfaces interfaces = AllInterfaces();
  for (const ifaddrs* one = interfaces.get(); one != nullptr; one = one->ifa_next) {
    if (!IsIp(one->ifa_addr) || one->ifa_netmask == nullptr) continue;
    const bool here =
        loopback ? ipv4_loopback.Contains(*one->ifa_addr) : place.network.Contains(*one->ifa_addr);
    if (!here) continue;
    place.interface = one->ifa_name;
    const auto network = IpNetwork::Around(*one->ifa_addr, *one->ifa_netmask);
    if (network.ok()) place.network = *network;
    break;
  }
  if (loopback) place.network = ipv4_loopback;
  return place;
}

std::map<std::string, std::string> NetworkProperties(const LocalAddress& local) {
  const std::string with_port = ToText(local.address);  // "10.0.0.1:0" or "[fd00::1]:0"
  std::string address = with_port.substr(0, with_port.rfind(':'));
  if (address.starts_with('[')) address = address.substr(1, address.size() - 2);
  std::map<std::string, std::string> properties = {
      {std::string(kAddressProperty), std::move(address)},
      {std::string(kNetworkProperty), local.network.ToText()}};
  if (!local.interface.empty()) properties[std::string(kInterfaceProperty)] = local.interface;
  return properties;
}

StatusOr<LocalAddress> FindLocalAddress(const std::string& host, const std::string& interface) {
  NS_ASSIGN_OR_RETURN(const SocketAddress address,
                      interface.empty() ? OfHost(host) : OfInterface(interface));
  return PlaceOf(address);
}

}  // namespace neuroshard
