// Import of NeuroShard's released cost data (its collect_*_cost_data.py) into a profile store.
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
#include "common/store/profile_store.h"

namespace neuroshard {

struct CostDataSource {
  std::optional<std::string> compute_directory;  // with table_configs.json and data.txt
  std::optional<std::string> comm_directory;     // with data.txt
  std::int64_t batch_size = 65536;               // NeuroShard's; its files do not say
};

struct ImportCount {
  std::int64_t lines = 0;
  std::int64_t imported = 0;  // samples; a line of comm data has two, one per direction
  std::int64_t already_there = 0;
  std::int64_t malformed = 0;                 // lines
  std::vector<std::int64_t> first_malformed;  // line numbers from 1, at most 5
};

// The samples of the files, and counts of what could not be read.
struct CostData {
  std::vector<ComputeRecord> compute;
  std::vector<CommRecord> comm;  // two per line: backward, forward
  std::optional<ImportCount> compute_count;
  std::optional<ImportCount> comm_count;
};

// Reads the files; malformed lines are skipped and counted. INVALID_ARGUMENT for a bad
// table_configs.json, and for a data.txt without a good line; otherwise errors of ReadRegularFile.
StatusOr<CostData> ReadCostData(const CostDataSource& source);

// Imports compute and comm data in one transaction each, and counts what is imported. A sample is
// identified by its content and how often that occurs, so importing the same or grown data again
// adds only what is new.
Status ImportCostData(CostData& data, ProfileStore* store);

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
