#include "client/cli/option_check.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace neuroshard {

std::string CheckAddress(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const std::string fault = fmt::format("must be HOST:PORT, got \"{}\"", text);
  if (colon == std::string::npos || colon == 0) return fault;
  const bool bracketed = text.front() == '[' && text[colon - 1] == ']';
  if (!bracketed && text.find(':') != colon) return fault;
  int port = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, port);
  if (error != std::errc() || rest != end || port < 1 || port > 65'535) return fault;
  return "";
}

std::string CheckReplicaAddress(const std::string& text) {
  if (text.find(',') == std::string::npos) return CheckAddress(text);
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string one = text.substr(begin, end - begin);
    if (std::string fault = CheckAddress(one); !fault.empty()) return fault;
    const bool is_v6 = one.front() == '[';
    const std::size_t colon = one.rfind(':');
    const std::string host = is_v6 ? one.substr(1, colon - 2) : one.substr(0, colon);
    in6_addr parsed{};
    if (inet_pton(is_v6 ? AF_INET6 : AF_INET, host.c_str(), &parsed) != 1 ||
        is_v6 != (text.front() == '[')) {
      return fmt::format(
          "a list must be of IP addresses of one family, each with its port, got \"{}\" (a name "
          "that "
          "resolves to several addresses needs no list)",
          one);
    }
    begin = end + 1;
  }
  return "";
}

}  // namespace neuroshard
