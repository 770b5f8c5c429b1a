// The tables of a profile store and which files are one (README.md).
#pragma once

#include "common/base/status.h"
#include "common/store/sql_database.h"
#include "common/store/sqlite_database.h"

namespace neuroshard {

// Makes a new, empty file a profile store; brings one of an older version up to
// ProfileStore::kSchemaVersion, in one transaction. FAILED_PRECONDITION when the file is another
// application's or of a newer version.
Status PrepareSchema(SqliteDatabase& database);

// The check of PrepareSchema without making anything. A file of an older version then reads as if
// it were of this one, through this connection.
Status CheckSchema(SqliteDatabase& database);

// These do so in a PostgreSQL database, whose schema `neuroshard` is the store. CheckPostgresSchema:
// NOT_FOUND when there is none; one of an older version is FAILED_PRECONDITION, as nothing may be
// changed.
Status PreparePostgresSchema(SqlDatabase& database);
Status CheckPostgresSchema(SqlDatabase& database);

}  // namespace neuroshard
