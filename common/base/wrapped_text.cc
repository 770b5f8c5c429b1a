#include "common/base/wrapped_text.h"

#include <algorithm>

namespace neuroshard {

std::size_t ColumnsOf(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string Wrapped(std::string_view text, std::size_t columns, std::size_t indent,
                    std::size_t used) {
  std::string wrapped;
  bool at_start = true;
  while (!text.empty()) {
    if (text.front() == '\n') {
      wrapped += '\n';
      used = 0;
      at_start = true;
      text.remove_prefix(1);
      continue;
    }
    // Spaces, and the word behind them.
    const std::size_t spaces = std::min(text.find_first_not_of(' '), text.size());
    const std::size_t end = std::min(text.find_first_of(" \n", spaces), text.size());
    const std::string_view word = text.substr(spaces, end - spaces);
    const std::size_t width = ColumnsOf(word);
    if (!at_start && used + spaces + width > columns) {
      wrapped += '\n';
      wrapped.append(indent, ' ');
      used = indent;
    } else {
      wrapped.append(spaces, ' ');
      used += spaces;
    }
    wrapped += word;
    used += width;
    at_start = false;
    text.remove_prefix(end);
  }
  return wrapped;
}

}  // namespace neuroshard
