#include "common/store/sql_database.h"

#include <fmt/ranges.h>

#include <tuple>

#include "common/base/positions.h"

namespace neuroshard {
namespace {

std::vector<std::string_view> ColumnsOf(const SqlRow& row) {
  return Mapped(row, &SqlRow::value_type::first);
}

std::string InsertionOf(std::string_view table, const SqlRow& row, std::size_t rows,
                        std::string_view suffix) {
  const std::vector<std::string_view> marks(row.size(), "?");
  const std::vector<std::string> values(rows, fmt::format("({})", fmt::join(marks, ", ")));
  return fmt::format("INSERT INTO {} ({}) VALUES {} {}", table, fmt::join(ColumnsOf(row), ", "),
                     fmt::join(values, ", "), suffix);
}

// The next parameters.
void BindRow(const SqlRow& row, SqlStatement& statement) {
  const auto bind = [&]<typename T>(const T& value) {
    if constexpr (std::is_same_v<T, std::monostate>) {
      statement.BindNull();
    } else {
      statement.Bind(value);
    }
  };
  for (const auto& [column, value] : row) std::visit(bind, value);
}

}  // namespace

Status SqlStatement::Run() {
  bool row = true;
  while (row) {
    NS_ASSIGN_OR_RETURN(row, Step());
  }
  return absl::OkStatus();
}

StatusOr<std::int64_t> SqlDatabase::QueryInteger(std::string_view sql) {
  NS_ASSIGN_OR_RETURN(const auto statement, Prepare(sql));
  NS_ASSIGN_OR_RETURN(const bool row, statement->Step());
  return row ? statement->Integer(0) : 0;
}

StatusOr<std::optional<std::int64_t>> SqlDatabase::First(std::string_view sql,
                                                         const SqlRow& parameters) {
  NS_ASSIGN_OR_RETURN(const auto statement, Prepare(sql));
  BindRow(parameters, *statement);
  NS_ASSIGN_OR_RETURN(const bool row, statement->Step());
  return row ? std::optional(statement->Integer(0)) : std::nullopt;
}

StatusOr<std::optional<std::int64_t>> SqlDatabase::Find(std::string_view column,
                                                        std::string_view table,
                                                        const SqlRow& values) {
  return First(fmt::format("SELECT {} FROM {} WHERE {} = ?", column, table,
                           fmt::join(ColumnsOf(values), " = ? AND ")),
               values);
}

StatusOr<std::optional<std::int64_t>> SqlDatabase::Insert(std::string_view table, const SqlRow& row,
                                                          std::string_view suffix) {
  return First(InsertionOf(table, row, 1, suffix), row);
}

Status SqlDatabase::ForEachRow(std::string_view sql, std::initializer_list<std::int64_t> parameters,
                               const std::function<Status(const SqlStatement& row)>& visit) {
  NS_ASSIGN_OR_RETURN(const auto rows, Prepare(sql));
  for (const std::int64_t parameter : parameters) rows->Bind(parameter);
  while (true) {
    NS_ASSIGN_OR_RETURN(const bool more, rows->Step());
    if (!more) return absl::OkStatus();
    NS_RETURN_IF_ERROR(visit(*rows));
  }
}

StatusOr<SqlTransaction> SqlTransaction::Begin(SqlDatabase& database, TransactionKind kind) {
  SqlTransaction transaction(database);  // rolls back one that waited in vain for another
  NS_RETURN_IF_ERROR(database.Begin(kind));
  return transaction;
}

Status SqlTransaction::Commit() {
  NS_RETURN_IF_ERROR(database_->Execute("COMMIT"));
  std::ignore = database_.release();
  return absl::OkStatus();
}

Status RowInserter::Add(SqlRow row) {
  // Few enough for SQLite's and PostgreSQL's limits on parameters, 32,766 and 65,535.
  constexpr std::size_t kRowsAStatement = 200;
  rows_.push_back(std::move(row));
  return rows_.size() < kRowsAStatement ? absl::OkStatus() : Flush();
}

Status RowInserter::Flush() {
  if (rows_.empty()) return absl::OkStatus();
  NS_ASSIGN_OR_RETURN(const auto insert,
                      database_.Prepare(InsertionOf(table_, rows_.front(), rows_.size(), suffix_)));
  for (const SqlRow& row : rows_) BindRow(row, *insert);
  rows_.clear();
  return insert->Run();
}

}  // namespace neuroshard
