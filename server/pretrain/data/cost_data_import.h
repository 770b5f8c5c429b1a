// Import of NeuroShard's released cost data into a profile store.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
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

}  // namespace neuroshard
