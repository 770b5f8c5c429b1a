// SQLite as values and Status: the one place that knows its C interface.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/mutex.h"
#include "common/base/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace neuroshard {

// A prepared statement with its parameters bound. Step until it says no row.
class SqliteStatement {
 public:
  SqliteStatement(SqliteStatement&& other) noexcept;
  SqliteStatement& operator=(SqliteStatement&&) = delete;
  ~SqliteStatement();

  // Parameters in order, from 1. Binding cannot fail but for memory, which the next Step reports.
  SqliteStatement& Bind(std::int64_t value);
  SqliteStatement& Bind(double value);  // NaN becomes NULL
  SqliteStatement& Bind(std::string_view text);
  SqliteStatement& BindNull();

  // Whether there is a row.
  StatusOr<bool> Step();
  // For statements without rows.
  Status Run();
  // Ready for other parameters.
  void Reset();

  // Columns of the row, from 0.
  std::int64_t Integer(int column) const;
  double Real(int column) const;  // NaN for NULL
  std::string Text(int column) const;
  bool IsNull(int column) const;

 private:
  friend class SqliteDatabase;
  SqliteStatement(sqlite3* database, sqlite3_stmt* statement, const std::string* path);

  sqlite3* database_;
  sqlite3_stmt* statement_;
  const std::string* path_;
  int bound_ = 0;
  int bind_error_ = 0;
};

// One connection. Not thread-safe by itself: hold mutex() around anything.
class SqliteDatabase {
 public:
  enum class Access { kReadWrite, kReadOnly, kImmutable };

  // Creates a missing file with kReadWrite. kImmutable reads without taking locks or looking at a
  // write-ahead log: for files on read-only media that nobody writes.
  static StatusOr<std::unique_ptr<SqliteDatabase>> Open(const std::string& path, Access access,
                                                        int busy_timeout_ms);
  ~SqliteDatabase();
  SqliteDatabase(const SqliteDatabase&) = delete;
  SqliteDatabase& operator=(const SqliteDatabase&) = delete;

  Mutex& mutex() NS_THREAD_ANNOTATION(lock_returned(mutex_)) { return mutex_; }

  StatusOr<SqliteStatement> Prepare(std::string_view sql);
  // Any number of statements without parameters; rows are ignored.
  Status Execute(const char* sql);
  StatusOr<std::int64_t> QueryInteger(std::string_view sql);
  std::int64_t LastInsertedId() const;
  bool CanWrite() const;
  const std::string& path() const { return path_; }

 private:
  SqliteDatabase(std::string path, sqlite3* database)
      : path_(std::move(path)), database_(database) {}

  std::string path_;
  sqlite3* database_;
  Mutex mutex_;
};

// Everything until Commit, or nothing. Takes the write lock at once, so that it cannot fail halfway
// because of another writer.
class SqliteTransaction {
 public:
  static StatusOr<SqliteTransaction> Begin(SqliteDatabase& database);
  SqliteTransaction(SqliteTransaction&& other) noexcept;
  SqliteTransaction& operator=(SqliteTransaction&&) = delete;
  ~SqliteTransaction();

  Status Commit();

 private:
  explicit SqliteTransaction(SqliteDatabase& database) : database_(&database) {}

  SqliteDatabase* database_;
};

}  // namespace neuroshard
