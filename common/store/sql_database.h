// A database under a profile store as values and Status: what SQLite and PostgreSQL have in common.
// Statements are SQL that both understand, with `?` for parameters.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"

namespace neuroshard {

// The row that a query is at; columns from 0.
class SqlColumns {
 public:
  virtual ~SqlColumns() = default;

  virtual std::int64_t Integer(int column) const = 0;
  virtual double Real(int column) const = 0;  // NaN for NULL
  virtual std::string Text(int column) const = 0;
  virtual bool IsNull(int column) const = 0;
};

// A value of a column; monostate is NULL, and NaN becomes NULL.
using SqlValue = std::variant<std::monostate, std::int64_t, double, std::string>;
// A row, or some of it, by the columns' names.
using SqlRow = std::vector<std::pair<std::string_view, SqlValue>>;
// The values of a statement's `?`, in their order.
using SqlParameters = std::vector<SqlValue>;

// kSnapshot reads what was there when it began. kWrite changes records; kExclusive also makes or
// removes sweeps, one such transaction at a time (in SQLite every writer is).
enum class TransactionKind { kSnapshot, kWrite, kExclusive };

// One connection. Not thread-safe by itself: hold mutex() around anything.
class SqlDatabase {
 public:
  explicit SqlDatabase(std::string name) : name_(std::move(name)) {}
  virtual ~SqlDatabase() = default;
  SqlDatabase(SqlDatabase&&) = delete;

  Mutex& mutex() NS_THREAD_ANNOTATION(lock_returned(mutex_)) { return mutex_; }

  // Runs one statement and calls `visit` for each row that it gives, until that fails.
  using Visit = std::function<Status(const SqlColumns& row)>;
  virtual Status Query(std::string_view sql, const SqlParameters& parameters,
                       const Visit& visit) = 0;
  // Any number of statements without parameters; rows are ignored.
  virtual Status Execute(const std::string& sql) = 0;
  // The first value of the last row; nothing where there is none.
  StatusOr<std::optional<std::int64_t>> QueryOne(std::string_view sql,
                                                 const SqlParameters& parameters = {});
  // 0 where there is no row.
  StatusOr<std::int64_t> QueryInteger(std::string_view sql);
  // `column` of a row of the table that has these values; nothing where there is none.
  StatusOr<std::optional<std::int64_t>> Find(std::string_view column, std::string_view table,
                                             const SqlRow& values);
  // Adds a row; `suffix` follows its values. What it returns, if anything.
  StatusOr<std::optional<std::int64_t>> Insert(std::string_view table, const SqlRow& row,
                                               std::string_view suffix = "");

  // Use SqlTransaction.
  virtual Status Begin(TransactionKind kind) = 0;

  // After a transaction that failed: OK when it may be run again, as its like can succeed now (the
  // connection was lost and is there again, or another transaction was in the way); otherwise why
  // not. Waits for a lost server until `deadline`, and in all calls together no longer than
  // kReconnectTime after it was lost: what was waited for in vain is not waited for again.
  virtual Status Recover(const Status& failure,
                         std::chrono::steady_clock::time_point /*deadline*/) {
    return failure;
  }

  // Called once a loss, when the server does not answer at once and is waited for.
  void OnOutage(std::function<void(const Status& why)> tell) { tell_of_outage_ = std::move(tell); }

  // What the database itself finds wrong with its files, at most ten lines; empty when nothing.
  virtual StatusOr<std::vector<std::string>> FindDamage() = 0;
  // Bytes that the store takes.
  virtual StatusOr<std::int64_t> Bytes() = 0;

  // The file, or the address; in messages.
  const std::string& name() const { return name_; }

 protected:
  std::function<void(const Status& why)> tell_of_outage_ = [](const Status&) {};

 private:
  std::string name_;
  Mutex mutex_;
};

// Everything until Commit, or nothing.
class SqlTransaction {
 public:
  static StatusOr<SqlTransaction> Begin(SqlDatabase& database, TransactionKind kind);

  Status Commit();

 private:
  struct RollBack {
    // The connection rolls back by itself when even this fails.
    void operator()(SqlDatabase* database) const { database->Execute("ROLLBACK").IgnoreError(); }
  };

  explicit SqlTransaction(SqlDatabase& database) : database_(&database) {}

  std::unique_ptr<SqlDatabase, RollBack> database_;
};

// How long a lost server is waited for, each time that it is lost. What loses it itself, in every
// attempt, ends after so many losses and the time.
inline constexpr std::chrono::milliseconds kReconnectTime{30'000};
inline constexpr int kMaxConnectionLosses = 10;

// Runs once(again); `again` is whether it was run before, in which case what it did then may have
// been committed without an answer. A lost connection is made again, and the server waited for, for
// up to kReconnectTime; conflicts are tried again for as long in all.
template <typename Once>
Status DespiteLosses(SqlDatabase& database, Once once) {
  const MutexLock lock(database.mutex());
  Status status = once(false);
  auto deadline = std::chrono::steady_clock::now() + kReconnectTime;
  int losses = 0;
  while (!status.ok()) {
    // A long transaction may see several.
    if (absl::IsUnavailable(status) && ++losses <= kMaxConnectionLosses) {
      deadline = std::chrono::steady_clock::now() + kReconnectTime;
    }
    NS_RETURN_IF_ERROR(database.Recover(status, deadline));
    status = once(true);
  }
  return status;
}

// Runs body(again), or body(), as one transaction, as DespiteLosses does; what the last run gave, a
// Status or a StatusOr.
template <typename Body>
auto InTransaction(SqlDatabase& database, TransactionKind kind, Body body) {
  const auto run = [&body](bool again) {
    if constexpr (std::is_invocable_v<Body, bool>) {
      return body(again);
    } else {
      return body();
    }
  };
  decltype(run(false)) result;
  const Status status = DespiteLosses(database, [&](bool again) -> Status {
    NS_ASSIGN_OR_RETURN(SqlTransaction transaction, SqlTransaction::Begin(database, kind));
    result = run(again);
    if constexpr (std::is_same_v<decltype(result), Status>) {
      NS_RETURN_IF_ERROR(result);
    } else {
      NS_RETURN_IF_ERROR(result.status());
    }
    return transaction.Commit();
  });
  if (!status.ok()) result = status;
  return result;
}

// Many rows of one table, all of the same columns, in few statements: a row a statement would cost
// a network's round trip each. Rows are in the table after Flush.
class RowInserter {
 public:
  // `suffix` follows the values.
  RowInserter(SqlDatabase& database, std::string table, std::string suffix = "")
      : database_(database), table_(std::move(table)), suffix_(std::move(suffix)) {}

  Status Add(SqlRow row);
  Status Flush();

 private:
  SqlDatabase& database_;
  std::string table_;
  std::string suffix_;
  std::vector<SqlRow> rows_;
};

}  // namespace neuroshard
