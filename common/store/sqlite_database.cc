#include "common/store/sqlite_database.h"

#include <absl/strings/str_replace.h>
#include <sqlite3.h>

#include <limits>

#include "common/base/positions.h"

namespace neuroshard {
namespace {

Status SqliteError(int code, sqlite3* database, const std::string& path) {
  const std::string detail = database != nullptr ? sqlite3_errmsg(database) : sqlite3_errstr(code);
  const std::string message = fmt::format("{}: {}", path, detail);
  switch (code & 0xFF) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Unavailable("{}: another process is writing to it and did not finish in time ({})",
                         path, detail);
    case SQLITE_NOTADB:
      return FailedPrecondition("{} is not a profile store ({})", path, detail);
    case SQLITE_CORRUPT:
      return absl::DataLossError(message);
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return absl::PermissionDeniedError(message);
    case SQLITE_FULL:
    case SQLITE_NOMEM:
    case SQLITE_TOOBIG:
      return absl::ResourceExhaustedError(message);
    case SQLITE_CONSTRAINT:
      return absl::InternalError(message);
    default:
      return absl::FailedPreconditionError(message);
  }
}

// A path inside a "file:" URI.
std::string UriPath(const std::string& path) {
  return absl::StrReplaceAll(path, {{"%", "%25"}, {"?", "%3f"}, {"#", "%23"}});
}

class SqliteColumns final : public SqlColumns {
 public:
  explicit SqliteColumns(sqlite3_stmt* statement) : statement_(statement) {}

  std::int64_t Integer(int column) const override {
    return sqlite3_column_int64(statement_, column);
  }
  double Real(int column) const override {
    return IsNull(column) ? std::numeric_limits<double>::quiet_NaN()
                          : sqlite3_column_double(statement_, column);
  }
  std::string Text(int column) const override {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    const int bytes = sqlite3_column_bytes(statement_, column);
    return text == nullptr ? std::string() : std::string(text, static_cast<std::size_t>(bytes));
  }
  bool IsNull(int column) const override {
    return sqlite3_column_type(statement_, column) == SQLITE_NULL;
  }

 private:
  sqlite3_stmt* statement_;
};

// Binds parameter `at`, from 1; the error code.
struct BindTo {
  sqlite3_stmt* statement;
  int at;

  int operator()(std::monostate) const { return sqlite3_bind_null(statement, at); }
  int operator()(std::int64_t value) const { return sqlite3_bind_int64(statement, at, value); }
  int operator()(double value) const { return sqlite3_bind_double(statement, at, value); }
  int operator()(const std::string& text) const {
    return sqlite3_bind_text64(statement, at, text.data(), text.size(), SQLITE_STATIC, SQLITE_UTF8);
  }
};

}  // namespace

StatusOr<std::unique_ptr<SqliteDatabase>> SqliteDatabase::Open(const std::string& path,
                                                               Access access, int busy_timeout_ms) {
  int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  flags |= access == Access::kReadWrite ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
                                        : SQLITE_OPEN_READONLY;
  std::string name = path;
  if (access == Access::kImmutable) {
    flags |= SQLITE_OPEN_URI;
    name = "file:" + UriPath(path) + "?immutable=1";
  }
  sqlite3* database = nullptr;
  const int code = sqlite3_open_v2(name.c_str(), &database, flags, nullptr);
  // Owns the handle, which exists even when opening failed.
  std::unique_ptr<SqliteDatabase> opened(new SqliteDatabase(path, database));
  if (code != SQLITE_OK) return SqliteError(code, database, path);
  sqlite3_busy_timeout(database, busy_timeout_ms);
  return opened;
}

SqliteDatabase::~SqliteDatabase() { sqlite3_close_v2(database_); }

Status SqliteDatabase::Query(std::string_view sql, const SqlParameters& parameters,
                             const Visit& visit) {
  sqlite3_stmt* prepared = nullptr;
  int code =
      sqlite3_prepare_v2(database_, sql.data(), static_cast<int>(sql.size()), &prepared, nullptr);
  const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(prepared, sqlite3_finalize);
  if (code != SQLITE_OK) return SqliteError(code, database_, name());
  for (int at = 0; at < static_cast<int>(parameters.size()); ++at) {
    if (std::visit(BindTo{prepared, at + 1}, At(parameters, at)) != SQLITE_OK) {
      return ResourceExhausted("{}: a value is too large to be stored", name());
    }
  }
  const SqliteColumns row(prepared);
  while ((code = sqlite3_step(prepared)) == SQLITE_ROW) NS_RETURN_IF_ERROR(visit(row));
  return code == SQLITE_DONE ? absl::OkStatus() : SqliteError(code, database_, name());
}

Status SqliteDatabase::Execute(const std::string& sql) {
  const int code = sqlite3_exec(database_, sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : SqliteError(code, database_, name());
}

Status SqliteDatabase::Begin(TransactionKind kind) {
  return Execute(kind == TransactionKind::kSnapshot ? "BEGIN" : "BEGIN IMMEDIATE");
}

StatusOr<std::vector<std::string>> SqliteDatabase::FindDamage() {
  constexpr const char* kChecks[] = {
      "SELECT integrity_check FROM pragma_integrity_check(5) WHERE integrity_check <> 'ok'",
      "SELECT 'a row of ' || \"table\" || ' refers to none of ' || parent "
      "FROM pragma_foreign_key_check LIMIT 5"};
  std::vector<std::string> faults;
  for (const char* check : kChecks) {
    NS_RETURN_IF_ERROR(Query(check, {}, [&faults](const SqlColumns& row) {
      faults.push_back(row.Text(0));
      return absl::OkStatus();
    }));
  }
  return faults;
}

StatusOr<std::int64_t> SqliteDatabase::Bytes() {
  return QueryInteger("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size");
}

bool SqliteDatabase::CanWrite() const { return sqlite3_db_readonly(database_, "main") == 0; }

}  // namespace neuroshard
