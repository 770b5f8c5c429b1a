#include "common/codec/table_csv.h"

#include <cmath>

#include "common/base/in_file.h"
#include "common/base/number_text.h"
#include "common/base/text_lines.h"
#include "common/base/violations.h"
#include "common/codec/field_check.h"
#include "common/codec/text_file.h"

namespace neuroshard {
namespace {

constexpr std::size_t kColumns = 3 + kReuseBins;

std::string Header() {
  std::string header = "index,row,pooling_factor";
  for (int bin = 0; bin < kReuseBins; ++bin) header += fmt::format(",bin_{}", bin);
  return header;
}

// The number that all of `text` spells; nan when it does not spell one.
double Number(std::string_view text) { return NumberOf<double>(text).value_or(std::nan("")); }

Table ParseLine(std::string_view line, std::size_t index, const FieldCheck& check) {
  Table table;
  const std::vector<std::string_view> cells = SplitText(line, ',');
  if (cells.size() != kColumns) {
    check.Fail("columns", "must be {}, got {}", kColumns, cells.size());
    return table;
  }
  if (Number(cells[0]) != static_cast<double>(index)) {
    check.Fail("index", "must be {}, the number of tables above, got {}", index, Quoted(cells[0]));
  }
  table.name = fmt::format("table_{}", index);
  if (const auto rows = NumberOf<std::int64_t>(cells[1])) {
    check.InRange("row", *rows, 1, std::int64_t{1} << 48);
    table.num_embeddings = *rows;
  } else {
    check.Fail("row", "must be an integer, got {}", Quoted(cells[1]));
  }
  table.pooling_factor = Number(cells[2]);
  check.InRange("pooling_factor", table.pooling_factor, 0.0, 1e6);
  double sum = 0;
  for (std::size_t bin = 0; bin < table.reuse_histogram.size(); ++bin) {
    const double share = Number(cells[3 + bin]);
    check.InRange(fmt::format("bin_{}", bin), share, 0.0, 1.0);
    table.reuse_histogram[bin] = share;
    sum += share;
  }
  if (!(std::abs(sum - 1) <= 1e-3) && !(sum == 0 && table.pooling_factor == 0)) {
    check.Fail("bins", "must sum to 1 (within 0.001), got {:.6g}", sum);
  }
  return table;
}

}  // namespace

StatusOr<std::vector<Table>> ParseTableCsv(std::string_view text) {
  Violations violations;
  std::vector<Table> tables;
  const std::vector<std::string_view> lines = SplitLines(text);
  if (lines.empty() || lines[0] != Header()) {
    violations.Add("line 1", "must be {}, got {}", Quoted(Header()),
                   Quoted(lines.empty() ? "" : lines[0]));
    return violations.ToStatus();
  }
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    const FieldCheck check(fmt::format("line {}", i + 1), violations);
    tables.push_back(ParseLine(lines[i], tables.size(), check));
  }
  if (tables.empty()) violations.Add("line 2", "must be a table, got the end of the file");
  NS_RETURN_IF_ERROR(violations.ToStatus());
  return tables;
}

StatusOr<std::vector<Table>> ReadTableCsv(const std::string& path) {
  NS_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  StatusOr<std::vector<Table>> tables = ParseTableCsv(text);
  if (!tables.ok()) return InFile(path, tables.status());
  return tables;
}

}  // namespace neuroshard
