// Splitting text without copying it.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace neuroshard {

// The parts between separators; one more than there are separators.
inline std::vector<std::string_view> SplitText(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// Lines without their ends ("\n" or "\r\n"); an end at the end of the text does not begin another
// line.
inline std::vector<std::string_view> SplitLines(std::string_view text) {
  std::vector<std::string_view> lines = SplitText(text, '\n');
  if (lines.back().empty()) lines.pop_back();
  for (std::string_view& line : lines) {
    if (line.ends_with('\r')) line.remove_suffix(1);
  }
  return lines;
}

}  // namespace neuroshard
