#include "common/store/store_schema.h"

namespace neuroshard {
namespace {

// "NSpf"; tells `file` and us what the file is.
constexpr std::int64_t kApplicationId = 0x4E537066;

// README.md describes every column.
constexpr char kSchemaV1[] = R"sql(
CREATE TABLE sweeps (
  sweep_id INTEGER PRIMARY KEY AUTOINCREMENT,
  kind TEXT NOT NULL CHECK (kind IN ('compute', 'comm')),
  name TEXT NOT NULL,
  config_hash TEXT NOT NULL,
  config_text TEXT NOT NULL,
  imported INTEGER NOT NULL CHECK (imported IN (0, 1)),
  UNIQUE (kind, config_hash)
);
CREATE TABLE shards (
  shard_id INTEGER PRIMARY KEY,
  table_name TEXT NOT NULL,
  num_rows INTEGER NOT NULL,
  cols INTEGER NOT NULL,
  pooling_factor REAL NOT NULL,
  reuse_histogram TEXT NOT NULL,
  weight_dtype TEXT NOT NULL,
  pooling_mode TEXT NOT NULL,
  weighted INTEGER NOT NULL,
  UNIQUE (table_name, num_rows, cols, pooling_factor, reuse_histogram, weight_dtype, pooling_mode,
          weighted)
);
CREATE TABLE environments (
  environment_id INTEGER PRIMARY KEY,
  environment TEXT NOT NULL UNIQUE
);
CREATE TABLE compute_samples (
  sample INTEGER PRIMARY KEY,
  sweep_id INTEGER NOT NULL REFERENCES sweeps,
  position INTEGER NOT NULL,
  sample_id TEXT NOT NULL,
  shard_ids TEXT NOT NULL,
  batch_size INTEGER NOT NULL,
  optimizer TEXT NOT NULL,
  seed INTEGER NOT NULL,
  UNIQUE (sweep_id, position),
  UNIQUE (sweep_id, sample_id)
);
CREATE TABLE compute_measurements (
  sample INTEGER PRIMARY KEY REFERENCES compute_samples,
  outcome TEXT NOT NULL,
  detail TEXT NOT NULL,
  total_ms REAL,
  forward_ms REAL,
  backward_ms REAL,
  forward_series TEXT,
  backward_series TEXT,
  environment_id INTEGER REFERENCES environments,
  measured_at_unix_ms INTEGER
);
CREATE TABLE comm_samples (
  sample INTEGER PRIMARY KEY,
  sweep_id INTEGER NOT NULL REFERENCES sweeps,
  position INTEGER NOT NULL,
  sample_id TEXT NOT NULL,
  direction TEXT NOT NULL,
  num_ranks INTEGER NOT NULL,
  dim_sums TEXT NOT NULL,
  start_offsets_ms TEXT NOT NULL,
  batch_size INTEGER NOT NULL,
  element_bytes INTEGER NOT NULL,
  UNIQUE (sweep_id, position),
  UNIQUE (sweep_id, sample_id)
);
CREATE TABLE comm_measurements (
  sample INTEGER NOT NULL REFERENCES comm_samples,
  rank INTEGER NOT NULL,
  outcome TEXT NOT NULL,
  detail TEXT NOT NULL,
  cost_ms REAL,
  series TEXT,
  environment_id INTEGER REFERENCES environments,
  measured_at_unix_ms INTEGER,
  PRIMARY KEY (sample, rank)
) WITHOUT ROWID;
)sql";

struct Header {
  std::int64_t application_id = 0;
  std::int64_t version = 0;
  std::int64_t objects = 0;

  bool IsEmpty() const { return application_id == 0 && version == 0 && objects == 0; }
};

// One statement: another process that makes the file a store is seen whole or not at all.
StatusOr<Header> ReadHeader(SqliteDatabase& database) {
  NS_ASSIGN_OR_RETURN(
      SqliteStatement statement,
      database.Prepare("SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) "
                       "FROM pragma_application_id, pragma_user_version"));
  NS_ASSIGN_OR_RETURN(const bool row, statement.Step());
  if (!row) return Header();
  return Header{statement.Integer(0), statement.Integer(1), statement.Integer(2)};
}

Status CheckHeader(const Header& header, const std::string& path, int version) {
  if (header.application_id != kApplicationId) {
    return FailedPrecondition("{} is not a profile store", path);
  }
  if (header.version > version) {
    return FailedPrecondition(
        "{} is a profile store of version {}, written by a newer program; this one knows versions "
        "up "
        "to {}",
        path, header.version, version);
  }
  return absl::OkStatus();
}

// SQLite does not wait when two processes switch the same new file at once: each holds the read
// lock that the other would wait for (sqlite3_busy_handler says so). The refused one queues for the
// write lock, where SQLite does wait, and tries again; a file that has its log already needs no
// lock.
Status UseWriteAheadLog(SqliteDatabase& database) {
  constexpr int kAttempts = 20;
  Status switched;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    switched = database.Execute("PRAGMA journal_mode = WAL");
    if (!absl::IsUnavailable(switched)) return switched;
    NS_RETURN_IF_ERROR(SqliteTransaction::Begin(database).status());
  }
  return switched;
}

}  // namespace

Status CheckSchema(SqliteDatabase& database, int version) {
  NS_ASSIGN_OR_RETURN(const Header header, ReadHeader(database));
  return CheckHeader(header, database.path(), version);
}

Status PrepareSchema(SqliteDatabase& database, int version) {
  NS_ASSIGN_OR_RETURN(const Header before, ReadHeader(database));
  // Before anything is written: the file may be somebody else's.
  if (!before.IsEmpty()) NS_RETURN_IF_ERROR(CheckHeader(before, database.path(), version));
  // FULL syncs the log at every commit: an acknowledged record survives a power cut too, and a sync
  // takes far less time than the measurement that it follows.
  NS_RETURN_IF_ERROR(UseWriteAheadLog(database));
  NS_RETURN_IF_ERROR(database.Execute("PRAGMA synchronous = FULL"));
  NS_RETURN_IF_ERROR(database.Execute("PRAGMA foreign_keys = ON"));
  if (!before.IsEmpty()) return absl::OkStatus();
  // Another process may make the same file a store at this moment: only what is seen under the
  // write lock counts.
  NS_ASSIGN_OR_RETURN(SqliteTransaction transaction, SqliteTransaction::Begin(database));
  NS_ASSIGN_OR_RETURN(const Header header, ReadHeader(database));
  if (!header.IsEmpty()) return CheckHeader(header, database.path(), version);
  NS_RETURN_IF_ERROR(database.Execute(kSchemaV1));
  NS_RETURN_IF_ERROR(
      database.Execute(fmt::format("PRAGMA application_id = {}", kApplicationId).c_str()));
  NS_RETURN_IF_ERROR(database.Execute("PRAGMA user_version = 1"));
  return transaction.Commit();
}

}  // namespace neuroshard
