// Planned samples in and out of their tables. Callers hold the database's lock and, to write, a
// transaction.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "common/domain/measurement.h"
#include "common/store/sql_database.h"

namespace neuroshard {

// All samples of a sweep, or those without a record.
enum class SampleFilter { kAll, kPending };

// A sample and the key of its row.
template <typename Sample>
struct StoredSample {
  std::int64_t row = 0;
  Sample sample;
};

// INVALID_ARGUMENT names the first sample that cannot be stored: an id that is empty or given
// twice, no shards or ranks, a number that is not finite.
Status CheckSamples(const std::vector<ComputeSample>& samples);
Status CheckSamples(const std::vector<CommSample>& samples);

// In the given order; the keys of the rows come back in it.
StatusOr<std::vector<std::int64_t>> InsertSamples(SqlDatabase& database, std::int64_t sweep_id,
                                                  const std::vector<ComputeSample>& samples);
StatusOr<std::vector<std::int64_t>> InsertSamples(SqlDatabase& database, std::int64_t sweep_id,
                                                  const std::vector<CommSample>& samples);

// Samples of one sweep in their order.
StatusOr<std::vector<StoredSample<ComputeSample>>> SelectComputeSamples(SqlDatabase& database,
                                                                        std::int64_t sweep_id,
                                                                        SampleFilter filter);
StatusOr<std::vector<StoredSample<CommSample>>> SelectCommSamples(SqlDatabase& database,
                                                                  std::int64_t sweep_id,
                                                                  SampleFilter filter);

}  // namespace neuroshard
