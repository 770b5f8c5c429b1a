// Answers as a person reads them: columns that line up, and lines that a terminal shows whole.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/base/positions.h"
#include "common/base/printable_text.h"

namespace neuroshard {

// How much of an answer is shown, and where.
enum class Detail { kShort, kWide };
struct TextStyle {
  Detail detail = Detail::kShort;      // kWide: everything, on lines as long as they get
  std::size_t columns = kTextColumns;  // of kShort
  bool colour = false;

  bool wide() const { return detail == Detail::kWide; }
};

// Everything, for files and logs.
inline constexpr TextStyle kUnwrapped{.detail = Detail::kWide};

// Lines of text for `style`: those that are too long go on in the next, indented.
std::string Lines(std::string_view text, const TextStyle& style);

// A line "warning: TEXT" for each.
template <typename Texts>
std::string WarningLines(const Texts& warnings, const TextStyle& style) {
  std::string lines;
  for (const std::string& text : warnings) lines += Lines("warning: " + text + '\n', style);
  return lines;
}

// A value as tables show it: a text as it is, a real number with three digits, which milliseconds
// need, and "-" for an optional that is empty.
template <typename Value>
std::string Cell(const Value& value) {
  if constexpr (std::is_convertible_v<const Value&, std::string_view>) {
    return std::string(std::string_view(value));
  } else if constexpr (std::is_floating_point_v<Value>) {
    return fmt::format("{:.3f}", value);
  } else if constexpr (std::is_integral_v<Value>) {
    return fmt::format("{}", value);
  } else {
    return value ? Cell(*value) : "-";
  }
}

// What is shown of an optional field of a message: "-" where it is absent.
template <typename Row, typename Value>
auto IfGiven(bool (Row::*is_given)() const, Value (Row::*value)() const) {
  return [=](const Row& row) { return (row.*is_given)() ? Cell((row.*value)()) : "-"; };
}

// "1 rule", "2 rules".
template <typename Number>
std::string Counted(Number number, std::string_view what) {
  return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
}

// A table of text with a title line, each column as wide as its widest cell.
struct TextTable {
  enum class Align { kLeft, kRight };
  // Colours mark rows on terminals only; what they say stands in a cell, too.
  enum class Mark { kNone, kBold, kRed };
  struct Column {
    std::string title;
    Align align = Align::kRight;
  };
  struct Row {
    std::vector<std::string> cells;  // one a column
    Mark mark = Mark::kNone;
  };

  std::vector<Column> columns;
  std::vector<Row> rows = {};

  // Title line and rows, two spaces between columns, no spaces at line ends. A last column that is
  // left-aligned goes on in further lines where the style's columns end.
  std::string ToString(const TextStyle& style = {}) const;
};

// A table of which each column says what stands in it: a title, and what Cell shows of a row, which
// is a function of the row or a member of it. Columns that are not `shown` are left out.
template <typename Row>
class TableOf {
 public:
  template <typename Value>
  TableOf& Left(std::string title, const Value& value, bool shown = true) {
    return Add({std::move(title), TextTable::Align::kLeft}, value, shown);
  }
  template <typename Value>
  TableOf& Right(std::string title, const Value& value, bool shown = true) {
    return Add({std::move(title), TextTable::Align::kRight}, value, shown);
  }
  // Columns that are added from here on say "-" of other rows; null: of none.
  TableOf& Where(std::function<bool(const Row&)> is_known) {
    is_known_ = std::move(is_known);
    return *this;
  }
  TableOf& Marked(std::function<TextTable::Mark(const Row&)> mark) {
    mark_ = std::move(mark);
    return *this;
  }

  template <typename Rows>
  std::string ToString(const Rows& rows, const TextStyle& style = {}) const {
    TextTable table{columns_};
    for (const Row& row : rows) {
      table.rows.push_back(
          {Mapped<std::string>(cells_, [&](const auto& cell) { return cell(row); }),
           mark_ ? mark_(row) : TextTable::Mark::kNone});
    }
    return table.ToString(style);
  }

 private:
  template <typename Value>
  TableOf& Add(TextTable::Column column, const Value& value, bool shown) {
    if (!shown) return *this;
    columns_.push_back(std::move(column));
    cells_.push_back([value, is_known = is_known_](const Row& row) {
      return is_known && !is_known(row) ? "-" : Cell(std::invoke(value, row));
    });
    return *this;
  }

  std::vector<TextTable::Column> columns_;
  std::vector<std::function<std::string(const Row&)>> cells_;
  std::function<bool(const Row&)> is_known_;
  std::function<TextTable::Mark(const Row&)> mark_;
};

// Texts below a table, each once with the rows that it is said of: "a, b: text".
class TableNotes {
 public:
  void Add(const std::string& name, const std::string& text);
  std::string ToString(const TextStyle& style = {}) const;

 private:
  std::map<std::string, std::size_t> position_of_;
  std::vector<std::pair<std::string, std::vector<std::string>>> notes_;
};

}  // namespace neuroshard
