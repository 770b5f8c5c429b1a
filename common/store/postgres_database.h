// PostgreSQL under a profile store: the one place that knows libpqxx.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/store/sql_database.h"

namespace neuroshard {

// Whether a store is named by an address (postgresql://...) rather than by a path.
bool IsPostgresAddress(const std::string& store);

// One connection. What is lost with it is found again: Recover connects anew.
class PostgresDatabase final : public SqlDatabase {
 public:
  // `address` is libpq's: postgresql://user@host:port/database?parameters. What it leaves out,
  // libpq takes from its environment. One with a password is INVALID_ARGUMENT and is not repeated
  // in the message: passwords belong in PGPASSFILE or PGPASSWORD. UNAVAILABLE: the server cannot be
  // reached. A connection gives up on a silent network after about 30 s, and waits
  // `lock_timeout_ms` for other transactions.
  static StatusOr<std::unique_ptr<PostgresDatabase>> Open(const std::string& address,
                                                          bool read_only, int lock_timeout_ms);
  ~PostgresDatabase() override;

  StatusOr<std::unique_ptr<SqlStatement>> Prepare(std::string_view sql) override;
  Status Execute(const std::string& sql) override;
  Status Begin(TransactionKind kind) override;
  Status Recover(const Status& failure, std::chrono::steady_clock::time_point deadline) override;
  StatusOr<std::vector<std::string>> FindDamage() override;
  StatusOr<std::int64_t> Bytes() override;

 private:
  class Statement;
  struct Connection;

  PostgresDatabase(std::string address, std::string settings, bool read_only, int lock_timeout_ms);

  Status Connect();
  // The status of the exception being handled.
  Status Failure();

  std::string settings_;  // for libpq
  bool read_only_;
  int lock_timeout_ms_;
  bool lost_ = false;
  // Since when no connection was made; none: there is one.
  std::optional<std::chrono::steady_clock::time_point> lost_since_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace neuroshard
