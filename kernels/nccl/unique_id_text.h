// NCCL's unique id as text, so that it travels as an address, and the address in it; pure.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ip_network.h"
#include "common/base/status.h"

namespace neuroshard {

inline std::string BytesToHex(std::span<const char> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += kDigits[value >> 4];
    text += kDigits[value & 15];
  }
  return text;
}

// Fills all of `bytes`; false unless the text has just as many.
inline bool HexToBytes(std::string_view text, std::span<char> bytes) {
  const auto digit = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  if (text.size() != 2 * bytes.size()) return false;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    bytes[i] = static_cast<char>(high << 4 | low);
  }
  return true;
}

// What may be the socket in a unique id, which is rank 0's and which all ranks connect to. NCCL keeps
// it behind a random number of 8 bytes (bootstrap.h, ncclBootstrapHandle), before 2.16 at the
// beginning; the likelier first.
inline std::vector<SocketAddress> AddressesInUniqueId(std::span<const char> bytes) {
  std::vector<SocketAddress> found;
  for (const std::size_t offset : {std::size_t{8}, std::size_t{0}}) {
    SocketAddress address;
    if (bytes.size() < offset + sizeof(sockaddr_in6)) continue;
    std::memcpy(&address.storage, bytes.data() + offset, sizeof(sockaddr_in6));
    const int family = address.storage.ss_family;
    if (family != AF_INET && family != AF_INET6) continue;
    address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    found.push_back(address);
  }
  return found;
}

// Whether the socket in a unique id is in one of the networks: INVALID_ARGUMENT quotes both. What
// could be either must be in them as both.
inline Status CheckUniqueId(std::span<const char> bytes, const std::vector<IpNetwork>& networks) {
  const std::vector<SocketAddress> addresses = AddressesInUniqueId(bytes);
  if (addresses.empty()) return InvalidArgument("no address is found in this unique id of NCCL");
  for (const SocketAddress& address : addresses) {
    if (!AnyContains(networks, address.get())) {
      return InvalidArgument("{} is outside of the networks that this worker connects to: {}",
                             ToText(address), ToText(networks));
    }
  }
  return absl::OkStatus();
}

}  // namespace neuroshard
