// Networks of IP addresses.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace neuroshard {

// A range of IPv4 or IPv6 addresses by their first bits. A value; IPv4 addresses are kept, and
// found again, as IPv6's image of them (::ffff:a.b.c.d).
class IpNetwork {
 public:
  // "10.0.0.0/8", "fd00::/8"; without the slash a single address. INVALID_ARGUMENT says what is
  // wrong, a bit beyond the prefix included.
  static StatusOr<IpNetwork> Parse(const std::string& text);
  // The addresses that have the first bits of `address` (AF_INET or AF_INET6), which are those that
  // `mask` has.
  static StatusOr<IpNetwork> Around(const sockaddr& address, const sockaddr& mask);

  // False for addresses that are not IP.
  bool Contains(const sockaddr& address) const;
  std::string ToText() const;  // as Parse reads it

  bool operator==(const IpNetwork&) const = default;

 private:
  using Bytes = std::array<std::uint8_t, 16>;
  IpNetwork(const Bytes& first, int prefix_bits) : first_(first), prefix_bits_(prefix_bits) {}

  Bytes first_;
  int prefix_bits_;  // in [0, 128]
};

bool AnyContains(const std::vector<IpNetwork>& networks, const sockaddr& address);
// "127.0.0.0/8, ::1/128"
std::string ToText(const std::vector<IpNetwork>& networks);

// An address with its port as Linux has it; `length` bytes of it are used.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr& get() const { return reinterpret_cast<const sockaddr&>(storage); }
  sockaddr& get() { return reinterpret_cast<sockaddr&>(storage); }
};

// "10.0.0.1:4242" or "[fd00::1]:4242": numbers only, nothing is looked up.
StatusOr<SocketAddress> ParseSocketAddress(const std::string& text);
std::string ToText(const SocketAddress& address);

}  // namespace neuroshard
