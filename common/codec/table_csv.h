// The statistics of the 856 public DLRM 2021 tables: CSV with header
// `index,row,pooling_factor,bin_0,...,bin_16`, one line a table (configs/workloads/README.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/domain/table.h"

namespace neuroshard {

// Tables named "table_<index>", fp32, sum-pooled, in the order of the file; result[i] has index i,
// which is checked. The file has no dims: embedding_dim is left 0, the caller sets it.
// INVALID_ARGUMENT lists every faulty line with its number.
StatusOr<std::vector<Table>> ParseTableCsv(std::string_view text);
StatusOr<std::vector<Table>> ReadTableCsv(const std::string& path);

}  // namespace neuroshard
