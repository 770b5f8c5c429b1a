#include "client/cli/option_check.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

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

std::string CheckNotNegative(const std::string& text) {
  return text.starts_with('-') ? fmt::format("must not be negative, got \"{}\"", text) : "";
}

std::string CheckNotNan(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const bool is_nan = error == std::errc() && rest == end && std::isnan(value);
  return is_nan ? fmt::format("must be a number, got \"{}\"", text) : "";
}

}  // namespace neuroshard
