#include "common/codec/table_files.h"

#include <cmath>
#include <map>

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

Table ParseTable(std::string_view line, std::size_t index, const FieldCheck& check) {
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

std::vector<std::int64_t> ParseIntegers(std::string_view text, std::string_view field,
                                        std::int64_t low, std::int64_t high,
                                        const FieldCheck& check) {
  std::vector<std::int64_t> values;
  for (const std::string_view cell : SplitText(text, ',')) {
    const auto value = NumberOf<std::int64_t>(cell);
    if (!value) {
      check.Fail(field, "must be comma-separated integers, got {}", Quoted(cell));
    } else {
      check.InRange(field, *value, low, high);
    }
    values.push_back(value.value_or(0));
  }
  return values;
}

BenchmarkTask ParseTask(std::string_view line, const FieldCheck& check) {
  const std::vector<std::string_view> halves = SplitText(line, ' ');
  if (halves.size() != 2) {
    check.Fail("parts", "must be table indices, one space, dims; got {} part(s)", halves.size());
    return {};
  }
  const auto indices = ParseIntegers(halves[0], "indices", 0, (std::int64_t{1} << 31) - 1, check);
  const auto dims = ParseIntegers(halves[1], "dims", 1, 65536, check);
  if (indices.size() != dims.size()) {
    check.Fail("dims", "must be as many as indices, {}, got {}", indices.size(), dims.size());
    return {};
  }
  BenchmarkTask task;
  for (std::size_t i = 0; i < indices.size(); ++i) task.push_back({indices[i], dims[i]});
  return task;
}

// What `parse` makes of the file; its faults have the file's name.
template <typename T>
StatusOr<T> ReadFile(const std::string& path, StatusOr<T> (*parse)(std::string_view)) {
  NS_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  StatusOr<T> parsed = parse(text);
  if (!parsed.ok()) return InFile(path, parsed.status());
  return parsed;
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
    tables.push_back(ParseTable(lines[i], tables.size(), check));
  }
  if (tables.empty()) violations.Add("line 2", "must be a table, got the end of the file");
  NS_RETURN_IF_ERROR(violations.ToStatus());
  return tables;
}

StatusOr<std::vector<BenchmarkTask>> ParseTaskFile(std::string_view text) {
  Violations violations;
  std::vector<BenchmarkTask> tasks;
  const std::vector<std::string_view> lines = SplitLines(text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    tasks.push_back(ParseTask(lines[i], FieldCheck(fmt::format("line {}", i + 1), violations)));
  }
  if (tasks.empty()) violations.Add("line 1", "must be a task, got a file without any");
  NS_RETURN_IF_ERROR(violations.ToStatus());
  return tasks;
}

StatusOr<std::vector<Table>> ReadTableCsv(const std::string& path) {
  return ReadFile(path, &ParseTableCsv);
}

StatusOr<std::vector<BenchmarkTask>> ReadTaskFile(const std::string& path) {
  return ReadFile(path, &ParseTaskFile);
}

StatusOr<std::vector<Table>> TablesOfTask(const std::vector<Table>& tables,
                                          const BenchmarkTask& task) {
  std::vector<Table> drawn;
  std::map<std::int64_t, int> uses;
  for (const TaskTable& entry : task) {
    if (entry.index < 0 || entry.index >= static_cast<std::int64_t>(tables.size())) {
      return InvalidArgument("table index must be from 0 to {}, got {}",
                             static_cast<std::int64_t>(tables.size()) - 1, entry.index);
    }
    Table table = tables[static_cast<std::size_t>(entry.index)];
    const int use = ++uses[entry.index];
    if (use > 1) table.name += fmt::format("_use{}", use);
    table.embedding_dim = entry.embedding_dim;
    drawn.push_back(std::move(table));
  }
  return drawn;
}

}  // namespace neuroshard
