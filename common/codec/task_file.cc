#include "common/codec/task_file.h"

#include <map>

#include "common/base/in_file.h"
#include "common/base/number_text.h"
#include "common/base/text_lines.h"
#include "common/base/violations.h"
#include "common/codec/field_check.h"
#include "common/codec/text_file.h"

namespace neuroshard {
namespace {

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

BenchmarkTask ParseLine(std::string_view line, const FieldCheck& check) {
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

}  // namespace

StatusOr<std::vector<BenchmarkTask>> ParseTaskFile(std::string_view text) {
  Violations violations;
  std::vector<BenchmarkTask> tasks;
  const std::vector<std::string_view> lines = SplitLines(text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    tasks.push_back(ParseLine(lines[i], FieldCheck(fmt::format("line {}", i + 1), violations)));
  }
  if (tasks.empty()) violations.Add("line 1", "must be a task, got a file without any");
  NS_RETURN_IF_ERROR(violations.ToStatus());
  return tasks;
}

StatusOr<std::vector<BenchmarkTask>> ReadTaskFile(const std::string& path) {
  NS_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  StatusOr<std::vector<BenchmarkTask>> tasks = ParseTaskFile(text);
  if (!tasks.ok()) return InFile(path, tasks.status());
  return tasks;
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
