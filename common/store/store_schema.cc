#include "common/store/store_schema.h"

#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "common/store/profile_store.h"

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

// A column of text that came with a version after 1, and what it has in rows of before.
struct LaterColumn {
  int version;
  std::string_view table;
  std::string_view name;
  std::string_view otherwise;
};
constexpr LaterColumn kLaterColumns[] = {
    {2, "comm_samples", "collective", "all_to_all"},
    // Kernels of tables in host memory, distributions of ids.
    {3, "compute_samples", "shard_kernels", ""},
    {3, "comm_samples", "input_dist", ""},
    // Exchanges with casts.
    {4, "comm_samples", "wire_dtype", "fp32"},
    // Collectives that are issued back to back.
    {5, "comm_samples", "cadence", "barrier"},
};
constexpr int kVersion = std::end(kLaterColumns)[-1].version;
static_assert(kVersion == ProfileStore::kSchemaVersion);

// For a file of an older version that may not be written: what this connection reads looks like
// today's. A view in the connection's own temporary schema hides the table of the same name. When
// another process brings the file up to date meanwhile, `*` has the real columns, which come first.
std::string ViewsOver(std::int64_t version) {
  std::map<std::string_view, std::string> columns;
  for (const auto& [since, table, name, otherwise] : kLaterColumns) {
    if (since > version) columns[table] += fmt::format(", '{}' AS {}", otherwise, name);
  }
  std::string sql = "PRAGMA temp_store = MEMORY";
  for (const auto& [table, missing] : columns) {
    sql += fmt::format("; CREATE TEMP VIEW {0} AS SELECT *{1} FROM main.{0}", table, missing);
  }
  return sql;
}

Status CheckVersion(std::int64_t version, const std::string& name) {
  if (version >= 1 && version <= kVersion) return absl::OkStatus();
  return FailedPrecondition(
      "{} is a profile store of version {}, written by a newer program; this one knows versions up "
      "to {}",
      name, version, kVersion);
}

// The version of the store; 0: there is nothing yet. FAILED_PRECONDITION when the file is another
// program's or of a newer version. One statement: another process that makes the file a store is
// seen whole or not at all.
StatusOr<std::int64_t> VersionOf(SqliteDatabase& database) {
  std::int64_t application = 0, version = 0, objects = 0;
  NS_RETURN_IF_ERROR(
      database.Query("SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) "
                     "FROM pragma_application_id, pragma_user_version",
                     {}, [&](const SqlColumns& row) {
                       application = row.Integer(0);
                       version = row.Integer(1);
                       objects = row.Integer(2);
                       return absl::OkStatus();
                     }));
  if (application == 0 && version == 0 && objects == 0) return 0;
  if (application != kApplicationId) {
    return FailedPrecondition("{} is not a profile store but another program's database",
                              database.name());
  }
  NS_RETURN_IF_ERROR(CheckVersion(version, database.name()));
  return version;
}

// The version of the schema neuroshard.
StatusOr<std::int64_t> PostgresVersionOf(SqlDatabase& database) {
  constexpr std::string_view kCount =
      "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace('neuroshard')";
  NS_ASSIGN_OR_RETURN(const std::int64_t objects, database.QueryInteger(kCount));
  if (objects == 0) return 0;
  NS_ASSIGN_OR_RETURN(
      const std::int64_t has_version,
      database.QueryInteger(fmt::format("{} AND relname = 'store_version'", kCount)));
  std::int64_t version = 0;
  if (has_version > 0) {
    NS_ASSIGN_OR_RETURN(version,
                        database.QueryInteger("SELECT version FROM neuroshard.store_version"));
  }
  if (version == 0) {
    return FailedPrecondition("{}: the schema neuroshard is another program's", database.name());
  }
  NS_RETURN_IF_ERROR(CheckVersion(version, database.name()));
  return version;
}

// To this program's version, in one transaction. Another process may make the store, or bring it up
// to date, at this moment: only what is seen under the lock of writers counts. `begin` runs first
// where nothing is there, `dialect` makes SQLite's statements the database's own, and `stamp` states
// the version.
Status BringUpToDate(SqlDatabase& database,
                     const std::function<StatusOr<std::int64_t>()>& version_of,
                     const std::function<Status()>& begin,
                     const std::function<std::string(std::string)>& dialect,
                     const std::string& stamp) {
  NS_ASSIGN_OR_RETURN(SqlTransaction transaction,
                      SqlTransaction::Begin(database, TransactionKind::kExclusive));
  NS_ASSIGN_OR_RETURN(std::int64_t version, version_of());
  if (version == 0) {
    NS_RETURN_IF_ERROR(begin());
    NS_RETURN_IF_ERROR(database.Execute(dialect(kSchemaV1)));
    version = 1;
  }
  for (const auto& [since, table, name, otherwise] : kLaterColumns) {
    if (since <= version) continue;
    NS_RETURN_IF_ERROR(database.Execute(dialect(fmt::format(
        "ALTER TABLE {} ADD COLUMN {} TEXT NOT NULL DEFAULT '{}'", table, name, otherwise))));
  }
  NS_RETURN_IF_ERROR(database.Execute(stamp));
  return transaction.Commit();
}

// The statements for the same tables in PostgreSQL: other words for the types, and keys that count
// by themselves. Environments are longer than a B-tree's entries may be, so a hash index keeps them
// distinct.
std::string ToPostgres(std::string sql) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"environment TEXT NOT NULL UNIQUE",
       "environment TEXT NOT NULL, EXCLUDE USING hash (environment WITH =)"},
      {"INTEGER PRIMARY KEY AUTOINCREMENT", "INTEGER PRIMARY KEY"},
      {"INTEGER PRIMARY KEY REFERENCES", "BIGINT PRIMARY KEY REFERENCES"},
      {"INTEGER PRIMARY KEY", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"},
      {" INTEGER", " BIGINT"},
      {" REAL", " DOUBLE PRECISION"},
      {" WITHOUT ROWID", ""}};
  for (const auto& [from, to] : kWords) {
    for (std::size_t at = sql.find(from); at != std::string::npos;
         at = sql.find(from, at + to.size())) {
      sql.replace(at, from.size(), to);
    }
  }
  return sql;
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
    NS_RETURN_IF_ERROR(SqlTransaction::Begin(database, TransactionKind::kExclusive).status());
  }
  return switched;
}

}  // namespace

Status CheckSchema(SqliteDatabase& database) {
  NS_ASSIGN_OR_RETURN(const std::int64_t version, VersionOf(database));
  // Whoever makes it was killed, or is at it; or it was copied while all records were in its log.
  if (version == 0) {
    return NotFound(
        "there is no profile store in {} yet, which is empty, as is a copy of a store in use "
        "without its -wal file (`neuroshard store backup` makes a whole one)",
        database.name());
  }
  return version == kVersion ? absl::OkStatus() : database.Execute(ViewsOver(version));
}

Status PrepareSchema(SqliteDatabase& database) {
  // Before anything is written: the file may be somebody else's.
  NS_ASSIGN_OR_RETURN(const std::int64_t version, VersionOf(database));
  // FULL syncs the log at every commit: an acknowledged record survives a power cut too, and a sync
  // takes far less time than the measurement that it follows.
  NS_RETURN_IF_ERROR(UseWriteAheadLog(database));
  NS_RETURN_IF_ERROR(database.Execute("PRAGMA synchronous = FULL"));
  NS_RETURN_IF_ERROR(database.Execute("PRAGMA foreign_keys = ON"));
  if (version == kVersion) return absl::OkStatus();
  return BringUpToDate(
      database, [&] { return VersionOf(database); }, [] { return absl::OkStatus(); },
      [](std::string sql) { return sql; },
      fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}", kApplicationId,
                  kVersion));
}

Status CheckPostgresSchema(SqlDatabase& database) {
  NS_ASSIGN_OR_RETURN(const std::int64_t version, PostgresVersionOf(database));
  if (version == 0) return NotFound("there is no profile store in {}", database.name());
  if (version == kVersion) return absl::OkStatus();
  return FailedPrecondition(
      "{} is a profile store of version {}; a sweep of this program brings it to version {}",
      database.name(), version, kVersion);
}

Status PreparePostgresSchema(SqlDatabase& database) {
  NS_ASSIGN_OR_RETURN(const std::int64_t version, PostgresVersionOf(database));
  if (version == kVersion) return absl::OkStatus();
  const auto begin = [&database]() -> Status {
    NS_ASSIGN_OR_RETURN(const std::int64_t schemas,
                        database.QueryInteger("SELECT count(*) FROM pg_namespace WHERE nspname = "
                                              "'neuroshard'"));
    if (schemas == 0) NS_RETURN_IF_ERROR(database.Execute("CREATE SCHEMA neuroshard"));
    return database.Execute(
        "CREATE TABLE store_version (version BIGINT NOT NULL);"
        "INSERT INTO store_version VALUES (0)");
  };
  return BringUpToDate(
      database, [&] { return PostgresVersionOf(database); }, begin, ToPostgres,
      fmt::format("UPDATE store_version SET version = {}", kVersion));
}

}  // namespace neuroshard
