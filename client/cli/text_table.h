// Columns of text that line up.
#pragma once

#include <string>
#include <vector>

namespace neuroshard {

// A table of text with a title line, each column as wide as its widest cell.
class TextTable {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kRight;
  };

  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One cell a column.
  void AddRow(std::vector<std::string> cells);

  // Title line and rows, two spaces between columns, no spaces at line ends.
  std::string ToString() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace neuroshard
