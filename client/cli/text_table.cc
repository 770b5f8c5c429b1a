#include "client/cli/text_table.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>

namespace neuroshard {
namespace {

// Less room than this for a last column is none: it is not wrapped then.
constexpr std::size_t kMinColumns = 16;

const char* Begin(TextTable::Mark mark) {
  switch (mark) {
    case TextTable::Mark::kNone:
      break;
    case TextTable::Mark::kBold:
      return "\033[1m";
    case TextTable::Mark::kRed:
      return "\033[31m";
  }
  return "";
}

}  // namespace

std::string Lines(std::string_view text, const TextStyle& style) {
  return style.wide() ? std::string(text) : Wrapped(text, style.columns, 2);
}

std::string TextTable::ToString(const TextStyle& style) const {
  std::vector<std::string> titles;
  std::vector<std::size_t> widths;
  for (const Column& column : columns) {
    titles.push_back(column.title);
    widths.push_back(ColumnsOf(column.title));
  }
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < row.cells.size(); ++c) {
      widths[c] = std::max(widths[c], ColumnsOf(row.cells[c]));
    }
  }
  std::size_t before_last = 0;
  for (std::size_t c = 0; c + 1 < columns.size(); ++c) before_last += widths[c] + 2;
  const bool wraps = style.detail == Detail::kShort && columns.back().align == Align::kLeft &&
                     before_last + kMinColumns <= style.columns;
  std::string text;
  const auto add_line = [&](const std::vector<std::string>& cells, Mark mark) {
    std::string line;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      if (c > 0) line += "  ";
      const std::string padding(widths[c] - ColumnsOf(cells[c]), ' ');
      line += columns[c].align == Align::kRight ? padding + cells[c]
              : c + 1 < cells.size()            ? cells[c] + padding
              : wraps ? Wrapped(cells[c], style.columns, before_last, before_last)
                      : cells[c];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    const bool coloured = style.colour && mark != Mark::kNone;
    text += coloured ? Begin(mark) + line + "\033[0m\n" : line + '\n';
  };
  add_line(titles, Mark::kNone);
  for (const Row& row : rows) add_line(row.cells, row.mark);
  return text;
}

void TableNotes::Add(const std::string& name, const std::string& text) {
  if (text.empty()) return;
  const auto [place, is_new] = position_of_.try_emplace(text, notes_.size());
  if (is_new) notes_.push_back({text, {}});
  notes_[place->second].second.push_back(name);
}

std::string TableNotes::ToString(const TextStyle& style) const {
  std::string lines;
  for (const auto& [text, names] : notes_) {
    lines += Lines(fmt::format("{}: {}\n", fmt::join(names, ", "), text), style);
  }
  return lines;
}

}  // namespace neuroshard
