#include "common/base/ip_network.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "common/base/number_text.h"

namespace neuroshard {
namespace {

using Bytes = std::array<std::uint8_t, 16>;

constexpr int kBits = 128;
constexpr int kIpv4PrefixBits = 96;
constexpr std::array<std::uint8_t, 12> kIpv4Prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

Bytes FromIpv4(const in_addr& address) {
  Bytes bytes{};
  std::copy(kIpv4Prefix.begin(), kIpv4Prefix.end(), bytes.begin());
  std::memcpy(bytes.data() + kIpv4Prefix.size(), &address, sizeof address);
  return bytes;
}

bool IsIpv4(const Bytes& bytes) {
  return std::equal(kIpv4Prefix.begin(), kIpv4Prefix.end(), bytes.begin());
}

std::optional<Bytes> FromSockaddr(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    return FromIpv4(reinterpret_cast<const sockaddr_in&>(address).sin_addr);
  }
  if (address.sa_family != AF_INET6) return std::nullopt;
  Bytes bytes{};
  std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr,
              bytes.size());
  return bytes;
}

std::optional<Bytes> FromText(const std::string& text) {
  if (in_addr ipv4{}; inet_pton(AF_INET, text.c_str(), &ipv4) == 1) return FromIpv4(ipv4);
  Bytes bytes{};
  if (inet_pton(AF_INET6, text.c_str(), bytes.data()) != 1) return std::nullopt;
  return bytes;
}

Bytes FirstBits(Bytes bytes, int bits) {
  for (int i = 0; i < static_cast<int>(bytes.size()); ++i) {
    const int kept = std::clamp(bits - 8 * i, 0, 8);
    bytes[i] = static_cast<std::uint8_t>(bytes[i] & (0xff00 >> kept));
  }
  return bytes;
}

constexpr int kNone = -1;

// kNone unless it is a number in [0, max].
int ToNumber(std::string_view text, int max) {
  const int number = NumberOf<int>(text).value_or(kNone);
  return number >= 0 && number <= max ? number : kNone;
}

}  // namespace

StatusOr<IpNetwork> IpNetwork::Parse(const std::string& text) {
  const std::size_t slash = text.find('/');
  const std::optional<Bytes> first = FromText(text.substr(0, slash));
  if (!first.has_value()) {
    return InvalidArgument("\"{}\" is no network: it must begin with an IPv4 or IPv6 address",
                           text);
  }
  const bool ipv4 = text.find(':') == std::string::npos;
  int bits = kBits;
  if (slash != std::string::npos) {
    const int most = ipv4 ? kBits - kIpv4PrefixBits : kBits;
    const int prefix = ToNumber(std::string_view(text).substr(slash + 1), most);
    if (prefix == kNone) {
      return InvalidArgument("\"{}\" is no network: the prefix must be in [0, {}]", text, most);
    }
    bits = prefix + (ipv4 ? kIpv4PrefixBits : 0);
  }
  const IpNetwork network(FirstBits(*first, bits), bits);
  if (network.first_ != *first) {
    return InvalidArgument("\"{}\" has bits beyond its prefix: did you mean {}?", text,
                           network.ToText());
  }
  return network;
}

StatusOr<IpNetwork> IpNetwork::Around(const sockaddr& address, const sockaddr& mask) {
  const std::optional<Bytes> bytes = FromSockaddr(address), mask_bytes = FromSockaddr(mask);
  if (!bytes.has_value() || !mask_bytes.has_value()) return InvalidArgument("not an IP address");
  int bits = address.sa_family == AF_INET ? kIpv4PrefixBits : 0;
  while (bits < kBits && ((*mask_bytes)[bits / 8] >> (7 - bits % 8) & 1) == 1) ++bits;
  return IpNetwork(FirstBits(*bytes, bits), bits);
}

bool IpNetwork::Contains(const sockaddr& address) const {
  const std::optional<Bytes> bytes = FromSockaddr(address);
  return bytes.has_value() && FirstBits(*bytes, prefix_bits_) == first_;
}

std::string IpNetwork::ToText() const {
  char text[INET6_ADDRSTRLEN] = {};
  if (IsIpv4(first_) && prefix_bits_ >= kIpv4PrefixBits) {
    inet_ntop(AF_INET, first_.data() + kIpv4Prefix.size(), text, sizeof text);
    return fmt::format("{}/{}", text, prefix_bits_ - kIpv4PrefixBits);
  }
  inet_ntop(AF_INET6, first_.data(), text, sizeof text);
  return fmt::format("{}/{}", text, prefix_bits_);
}

bool AnyContains(const std::vector<IpNetwork>& networks, const sockaddr& address) {
  return std::ranges::any_of(networks,
                             [&](const IpNetwork& network) { return network.Contains(address); });
}

std::string ToText(const std::vector<IpNetwork>& networks) {
  std::string text;
  for (const IpNetwork& network : networks) {
    if (!text.empty()) text += ", ";
    text += network.ToText();
  }
  return text;
}

StatusOr<SocketAddress> ParseSocketAddress(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const int port = colon == std::string::npos
                       ? kNone
                       : ToNumber(std::string_view(text).substr(colon + 1), 65535);
  std::string host = text.substr(0, colon);
  SocketAddress address;
  auto& ipv4 = reinterpret_cast<sockaddr_in&>(address.storage);
  auto& ipv6 = reinterpret_cast<sockaddr_in6&>(address.storage);
  if (port != kNone && inet_pton(AF_INET, host.c_str(), &ipv4.sin_addr) == 1) {
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(static_cast<std::uint16_t>(port));
    address.length = sizeof ipv4;
    return address;
  }
  if (port != kNone && host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    if (inet_pton(AF_INET6, host.c_str(), &ipv6.sin6_addr) == 1) {
      ipv6.sin6_family = AF_INET6;
      ipv6.sin6_port = htons(static_cast<std::uint16_t>(port));
      address.length = sizeof ipv6;
      return address;
    }
  }
  return InvalidArgument("not an IP address with a port");
}

std::string ToText(const SocketAddress& address) {
  char host[INET6_ADDRSTRLEN] = {};
  if (address.storage.ss_family == AF_INET6) {
    const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(address.storage);
    inet_ntop(AF_INET6, &ipv6.sin6_addr, host, sizeof host);
    return fmt::format("[{}]:{}", host, ntohs(ipv6.sin6_port));
  }
  const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address.storage);
  inet_ntop(AF_INET, &ipv4.sin_addr, host, sizeof host);
  return fmt::format("{}:{}", host, ntohs(ipv4.sin_port));
}

}  // namespace neuroshard
