// Measurement records in and out of their tables. Callers hold the database's lock and, to write, a
// transaction.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "common/domain/measurement.h"
#include "common/store/profile_store.h"
#include "common/store/sql_database.h"

namespace neuroshard {

// The key of an environment's text (row_text.h), stored now or before. Thousands of records come
// from one environment.
StatusOr<std::int64_t> EnvironmentTextId(SqlDatabase& database, const std::string& text);

// `row` is the key of the sample. Costs that are not finite or are negative are INVALID_ARGUMENT.
Status InsertRecord(SqlDatabase& database, std::int64_t row, const ComputeMeasurement& measurement);
Status InsertRecord(SqlDatabase& database, std::int64_t row, const CommMeasurement& measurement);

// OK when the record of the sample is this one, else ALREADY_EXISTS. For whoever was cut off and
// does not know whether it stored it.
Status IsStored(SqlDatabase& database, std::int64_t row, const ComputeMeasurement& measurement);
Status IsStored(SqlDatabase& database, std::int64_t row, const CommMeasurement& measurement);

// Costs without a series, as imported.
Status InsertImportedRecord(SqlDatabase& database, std::int64_t row, const ComputeRecord& cost);
Status InsertImportedRecord(SqlDatabase& database, std::int64_t row, const CommRecord& cost);

// The usable records of one sweep, with that cost of their series.
StatusOr<std::vector<ComputeRecord>> SelectComputeRecords(SqlDatabase& database,
                                                          std::int64_t sweep_id, bool imported,
                                                          SeriesCost cost = SeriesCost::kMedian);
StatusOr<std::vector<CommRecord>> SelectCommRecords(SqlDatabase& database, std::int64_t sweep_id,
                                                    bool imported,
                                                    SeriesCost cost = SeriesCost::kMedian);

// All sweeps, oldest first, and how far each is.
StatusOr<std::vector<SweepStatistics>> SelectStatistics(SqlDatabase& database);

}  // namespace neuroshard
