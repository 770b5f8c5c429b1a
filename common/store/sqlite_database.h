// SQLite under a profile store: the one place that knows its C interface.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/store/sql_database.h"

struct sqlite3;

namespace neuroshard {

// One connection to a file.
class SqliteDatabase final : public SqlDatabase {
 public:
  enum class Access { kReadWrite, kReadOnly, kImmutable };

  // Creates a missing file with kReadWrite. kImmutable reads without taking locks or looking at a
  // write-ahead log: for files on read-only media that nobody writes.
  static StatusOr<std::unique_ptr<SqliteDatabase>> Open(const std::string& path, Access access,
                                                        int busy_timeout_ms);
  ~SqliteDatabase() override;

  Status Query(std::string_view sql, const SqlParameters& parameters, const Visit& visit) override;
  Status Execute(const std::string& sql) override;
  // Takes the write lock at once, so that it cannot fail halfway because of another writer.
  Status Begin(TransactionKind kind) override;
  StatusOr<std::vector<std::string>> FindDamage() override;
  StatusOr<std::int64_t> Bytes() override;
  bool CanWrite() const;

 private:
  SqliteDatabase(std::string path, sqlite3* database)
      : SqlDatabase(std::move(path)), database_(database) {}

  sqlite3* database_;
};

}  // namespace neuroshard
