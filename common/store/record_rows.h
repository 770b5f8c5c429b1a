// Measurement records in and out of their tables. Callers hold the database's lock and, to write, a
// transaction.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/base/status.h"
#include "common/domain/measurement.h"
#include "common/store/profile_store.h"
#include "common/store/sql_database.h"

namespace neuroshard {

// The key of an environment's text (ToRowText), stored now or before. Thousands of records come
// from one environment.
StatusOr<std::int64_t> EnvironmentTextId(SqlDatabase& database, const std::string& text);

// By their keys.
StatusOr<std::map<std::int64_t, MeasurementEnvironment>> SelectEnvironments(SqlDatabase& database);

// `row` is the key of the sample. Costs that are not finite or are negative are INVALID_ARGUMENT.
template <typename Measurement>
Status InsertRecord(SqlDatabase& database, std::int64_t row, const Measurement& measurement);

// OK when the record of the sample is this one, else ALREADY_EXISTS. For whoever was cut off and
// does not know whether it stored it.
template <typename Measurement>
Status IsStored(SqlDatabase& database, std::int64_t row, const Measurement& measurement);

// Costs without a series, as imported.
Status InsertImportedRecord(SqlDatabase& database, std::int64_t row, const ComputeRecord& cost);
Status InsertImportedRecord(SqlDatabase& database, std::int64_t row, const CommRecord& cost);

// Adds the usable records of one sweep to `records`, with that cost of their series.
Status SelectRecords(SqlDatabase& database, std::int64_t sweep_id, bool imported, SeriesCost cost,
                     std::vector<ComputeRecord>& records);
Status SelectRecords(SqlDatabase& database, std::int64_t sweep_id, bool imported, SeriesCost cost,
                     std::vector<CommRecord>& records);

// All sweeps, oldest first, and how far each is.
StatusOr<std::vector<SweepStatistics>> SelectStatistics(SqlDatabase& database);

}  // namespace neuroshard
