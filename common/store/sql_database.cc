#include "common/store/sql_database.h"

#include <fmt/ranges.h>

#include <tuple>

#include "common/base/positions.h"

namespace neuroshard {
namespace {

std::vector<std::string_view> ColumnsOf(const SqlRow& row) {
  return Mapped(row, &SqlRow::value_type::first);
}

SqlParameters ValuesOf(const SqlRow& row) { return Mapped(row, &SqlRow::value_type::second); }

std::string InsertionOf(std::string_view table, const SqlRow& row, std::size_t rows,
                        std::string_view suffix) {
  const std::vector<std::string_view> marks(row.size(), "?");
  const std::vector<std::string> values(rows, fmt::format("({})", fmt::join(marks, ", ")));
  return fmt::format("INSERT INTO {} ({}) VALUES {} {}", table, fmt::join(ColumnsOf(row), ", "),
                     fmt::join(values, ", "), suffix);
}

}  // namespace

StatusOr<std::optional<std::int64_t>> SqlDatabase::QueryOne(std::string_view sql,
                                                            const SqlParameters& parameters) {
  std::optional<std::int64_t> value;
  NS_RETURN_IF_ERROR(Query(sql, parameters, [&value](const SqlColumns& row) {
    value = row.Integer(0);
    return absl::OkStatus();
  }));
  return value;
}

StatusOr<std::int64_t> SqlDatabase::QueryInteger(std::string_view sql) {
  NS_ASSIGN_OR_RETURN(const auto value, QueryOne(sql));
  return value.value_or(0);
}

StatusOr<std::optional<std::int64_t>> SqlDatabase::Find(std::string_view column,
                                                        std::string_view table,
                                                        const SqlRow& values) {
  return QueryOne(fmt::format("SELECT {} FROM {} WHERE {} = ?", column, table,
                              fmt::join(ColumnsOf(values), " = ? AND ")),
                  ValuesOf(values));
}

StatusOr<std::optional<std::int64_t>> SqlDatabase::Insert(std::string_view table, const SqlRow& row,
                                                          std::string_view suffix) {
  return QueryOne(InsertionOf(table, row, 1, suffix), ValuesOf(row));
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
  const std::string sql = InsertionOf(table_, rows_.front(), rows_.size(), suffix_);
  SqlParameters values;
  values.reserve(rows_.size() * rows_.front().size());
  for (SqlRow& row : rows_) {
    for (auto& [column, value] : row) values.push_back(std::move(value));
  }
  rows_.clear();
  return database_.QueryOne(sql, values).status();
}

}  // namespace neuroshard
