// The tables of a profile store and which files are one (README.md).
#pragma once

#include "common/base/status.h"
#include "common/store/sqlite_database.h"

namespace neuroshard {

// Makes a new, empty file a profile store; leaves one alone. FAILED_PRECONDITION when the file is
// another application's or of a newer version than `version`.
Status PrepareSchema(SqliteDatabase& database, int version);

// The same check without making anything.
Status CheckSchema(SqliteDatabase& database, int version);

}  // namespace neuroshard
