// Measurement records in and out of their tables. Callers hold the database's lock and, to write, a
// transaction.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "common/domain/measurement.h"
#include "common/store/profile_store.h"
#include "common/store/sqlite_database.h"

namespace neuroshard {

// `row` is the key of the sample. Costs that are not finite or are negative are INVALID_ARGUMENT.
Status InsertRecord(SqliteDatabase& database, std::int64_t row,
                    const ComputeMeasurement& measurement);
Status InsertRecord(SqliteDatabase& database, std::int64_t row, const CommMeasurement& measurement);
Status InsertImportedRecord(SqliteDatabase& database, std::int64_t row, const ComputeRecord& cost);
Status InsertImportedRecord(SqliteDatabase& database, std::int64_t row, const CommRecord& cost);

// The usable records of one sweep.
StatusOr<std::vector<ComputeRecord>> SelectComputeRecords(SqliteDatabase& database,
                                                          std::int64_t sweep_id, bool imported);
StatusOr<std::vector<CommRecord>> SelectCommRecords(SqliteDatabase& database, std::int64_t sweep_id,
                                                    bool imported);

}  // namespace neuroshard
