// Records of a profile store as CSV (RFC 4180, UTF-8), for notebooks and spreadsheets.
#pragma once

#include <string>
#include <vector>

#include "common/store/profile_store.h"

namespace neuroshard {

// A line a sample; its shards are a JSON array in one field. Times in ms; forward and backward are
// empty where only the total is known, the environment's fields where a record was imported.
std::string RecordsAsCsv(const std::vector<ComputeRecord>& records);

// A line a rank of a sample. A distribution of ids has no direction, element_bytes, dim_sum and
// wire_dtype; the five columns before that are its own. The last four are the cadence and over what
// the rank met its peers, empty where the record does not say.
std::string RecordsAsCsv(const std::vector<CommRecord>& records);

}  // namespace neuroshard
