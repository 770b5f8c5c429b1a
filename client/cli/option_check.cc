#include "client/cli/option_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace neuroshard {

std::string CheckAddress(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const std::string fault = fmt::format("must be HOST:PORT, got \"{}\"", text);
  if (colon == std::string::npos || colon == 0) return fault;
  if (text.find_first_of(" \t\r\n") != std::string::npos) return fault;
  const bool bracketed = text.front() == '[' && text[colon - 1] == ']';
  if (!bracketed && text.find(':') != colon) return fault;
  int port = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, port);
  if (error != std::errc() || rest != end || port < 1 || port > 65'535) return fault;
  return "";
}

std::string CheckReplicaAddress(const std::string& text) {
  if (text.starts_with("unix:/")) return "";
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (std::string fault = CheckAddress(text.substr(begin, end - begin)); !fault.empty()) {
      return fault;
    }
    begin = end + 1;
  }
  return "";
}

}  // namespace neuroshard
