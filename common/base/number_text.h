// Numbers in texts.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace neuroshard {

// The number that all of `text` spells, as std::from_chars reads it: no plus sign, no spaces.
template <typename T>
std::optional<T> NumberOf(std::string_view text) {
  T number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

}  // namespace neuroshard
