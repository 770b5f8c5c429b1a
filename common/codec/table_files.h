// The formats of configs/workloads: statistics of tables, and tasks that draw from them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/domain/table.h"

namespace neuroshard {

// The statistics of the 856 public DLRM 2021 tables: CSV with header
// `index,row,pooling_factor,bin_0,...,bin_16`, one line a table (configs/workloads/README.md). Tables
// named "table_<index>", fp32, sum-pooled, in the order of the file; result[i] has index i, which is
// checked. The file has no dims: embedding_dim is left 0, the caller sets it. INVALID_ARGUMENT lists
// every faulty line with its number.
StatusOr<std::vector<Table>> ParseTableCsv(std::string_view text);
StatusOr<std::vector<Table>> ReadTableCsv(const std::string& path);

// A table of a task: a row of the CSV with a dim.
struct TaskTable {
  std::int64_t index = 0;  // into the tables of the CSV
  std::int64_t embedding_dim = 0;

  bool operator==(const TaskTable&) const = default;
};
using BenchmarkTask = std::vector<TaskTable>;

// NeuroShard's benchmark tasks: one task a line, comma-separated table indices, a space, as many
// comma-separated dims. INVALID_ARGUMENT lists every faulty line with its number. Empty lines are
// skipped; a file without tasks is an error.
StatusOr<std::vector<BenchmarkTask>> ParseTaskFile(std::string_view text);
StatusOr<std::vector<BenchmarkTask>> ReadTaskFile(const std::string& path);

// The tables of a task in its order, with the task's dims. A table drawn again is a table of its
// own: the second use of table_7 is named "table_7_use2", the third "table_7_use3".
// INVALID_ARGUMENT for an index that `tables` does not have.
StatusOr<std::vector<Table>> TablesOfTask(const std::vector<Table>& tables,
                                          const BenchmarkTask& task);

}  // namespace neuroshard
