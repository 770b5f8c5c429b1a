// Answers as a person reads them: columns that line up, and lines that a terminal shows whole.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/wrapped_text.h"

namespace neuroshard {

// How much of an answer is shown, and where.
enum class Detail { kShort, kWide };
struct TextStyle {
  Detail detail = Detail::kShort;      // kWide: everything, on lines as long as they get
  std::size_t columns = kTextColumns;  // of kShort
  bool colour = false;
};

// Lines of text for `style`: those that are too long go on in the next, indented.
std::string Lines(std::string_view text, const TextStyle& style);

// A table of text with a title line, each column as wide as its widest cell.
class TextTable {
 public:
  enum class Align { kLeft, kRight };
  // Colours mark rows on terminals only; what they say stands in a cell, too.
  enum class Mark { kNone, kBold, kRed };
  struct Column {
    std::string title;
    Align align = Align::kRight;
  };

  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One cell a column.
  void AddRow(std::vector<std::string> cells, Mark mark = Mark::kNone);

  // Title line and rows, two spaces between columns, no spaces at line ends. A last column that is
  // left-aligned goes on in further lines where the style's columns end.
  std::string ToString(const TextStyle& style = {}) const;

 private:
  struct Row {
    std::vector<std::string> cells;
    Mark mark = Mark::kNone;
  };

  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

}  // namespace neuroshard
