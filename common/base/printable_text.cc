#include "common/base/printable_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace neuroshard {
namespace {

// Bytes of the character that `text` (not empty) starts with; 0 when it starts with none (Unicode
// 15, table 3-7).
std::size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto continues = [&](std::size_t i) { return byte(i) >= 0x80 && byte(i) <= 0xBF; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const bool shortest = lead != 0xE0 || byte(1) >= 0xA0;
    const bool no_surrogate = lead != 0xED || byte(1) <= 0x9F;
    return continues(1) && continues(2) && shortest && no_surrogate ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const bool shortest = lead != 0xF0 || byte(1) >= 0x90;
    const bool in_range = lead != 0xF4 || byte(1) <= 0x8F;
    return continues(1) && continues(2) && continues(3) && shortest && in_range ? 4 : 0;
  }
  return 0;
}

}  // namespace

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = CharacterBytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string Printable(std::string_view text, std::size_t max_bytes) {
  std::string shown;
  while (!text.empty()) {
    if (shown.size() >= max_bytes) return shown + "...";
    const std::size_t bytes = CharacterBytes(text);
    const auto lead = static_cast<unsigned char>(text.front());
    const bool replaced = bytes == 0 || lead < ' ' || lead == 0x7F;
    shown += replaced ? "?" : text.substr(0, bytes);
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return shown;
}

std::string Quoted(std::string_view text) {
  constexpr std::size_t kMaxShownBytes = 60;
  std::string shown = "\"";
  std::size_t at = 0;
  while (at < text.size() && at < kMaxShownBytes) {
    const std::size_t bytes = CharacterBytes(text.substr(at));
    // A character that would not fit whole is left out.
    if (bytes > 0 && at + bytes > kMaxShownBytes) break;
    const auto lead = static_cast<unsigned char>(text[at]);
    if (lead < ' ' || lead == 0x7F) {
      shown += fmt::format("\\x{:02x}", lead);
    } else {
      shown += bytes == 0 ? "?" : text.substr(at, bytes);
    }
    at += std::max<std::size_t>(bytes, 1);
  }
  shown += '"';
  if (at < text.size()) shown += fmt::format("... ({} bytes)", text.size());
  return shown;
}

std::size_t ColumnsOf(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
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
