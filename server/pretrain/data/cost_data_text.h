// The text formats of NeuroShard's released cost data (its collect_*_cost_data.py), line by line.
//
//   compute: DIR/table_configs.json, the augmented tables:
//            [{"row", "dim", "pooling_factor", "bin_0" .. "bin_16"}, ...]
//            DIR/data.txt, one sample per line: `ids cost`, e.g. `17,4031,5 1.93`: positions in
//            table_configs.json, ms
//   comm:    DIR/data.txt: `dims offsets forward backward`, comma-separated lists with an entry per
//            GPU: dim sums, start offsets (ms), costs (ms)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/domain/measurement.h"

namespace neuroshard {

struct ComputeCostLine {
  std::vector<std::int64_t> table_ids;
  double cost_ms = 0;

  bool operator==(const ComputeCostLine&) const = default;
};

struct CommCostLine {
  std::vector<std::int64_t> dim_sums;
  std::vector<double> start_offsets_ms;
  std::vector<double> forward_ms;
  std::vector<double> backward_ms;

  bool operator==(const CommCostLine&) const = default;
};

// Parses a line; also reads `task: ids | cost: ms`, with or without brackets and spaces around the
// ids. Empty when the line is neither, an id is not below num_tables, or the cost is negative or
// not finite.
std::optional<ComputeCostLine> ParseComputeCostLine(std::string_view line, std::int64_t num_tables);

// Parses a line; empty unless it has four lists of one length, of finite numbers >= 0, with whole
// dim sums.
std::optional<CommCostLine> ParseCommCostLine(std::string_view line);

// Parses tables as fp32, sum pooling, unweighted, as NeuroShard measured. INVALID_ARGUMENT with
// every fault ("[3].dim: must be at least 1, got 0"); keys that are not features are skipped.
StatusOr<std::vector<MeasuredShard>> ParseTableConfigs(const std::string& json);

}  // namespace neuroshard
