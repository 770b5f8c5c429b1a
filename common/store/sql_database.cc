#include "common/store/sql_database.h"

#include <tuple>
#include <utility>

namespace neuroshard {

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

RowInserter::RowInserter(SqlDatabase& database, std::string table_and_columns, std::string suffix)
    : database_(database),
      table_and_columns_(std::move(table_and_columns)),
      suffix_(std::move(suffix)) {}

RowInserter& RowInserter::Bind(Value value) {
  values_.push_back(std::move(value));
  return *this;
}

Status RowInserter::EndRow() {
  // Few enough for SQLite's and PostgreSQL's limits on parameters, 32,766 and 65,535.
  constexpr std::size_t kRowsAStatement = 200;
  ++rows_;
  return rows_ < kRowsAStatement ? absl::OkStatus() : Flush();
}

Status RowInserter::Flush() {
  if (rows_ == 0) return absl::OkStatus();
  std::string row = "(";
  for (std::size_t i = 0; i < values_.size() / rows_; ++i) row += i == 0 ? "?" : ", ?";
  row += ')';
  std::string sql = "INSERT INTO " + table_and_columns_ + " VALUES ";
  for (std::size_t i = 0; i < rows_; ++i) sql += (i == 0 ? "" : ", ") + row;
  NS_ASSIGN_OR_RETURN(const auto insert, database_.Prepare(sql + ' ' + suffix_));
  for (const Value& value : values_) BindValue(value, *insert);
  values_.clear();
  rows_ = 0;
  return insert->Run();
}

void BindValue(const RowInserter::Value& value, SqlStatement& statement) {
  std::visit(
      [&]<typename T>(const T& bound) {
        if constexpr (std::is_same_v<T, std::monostate>) {
          statement.BindNull();
        } else {
          statement.Bind(bound);
        }
      },
      value);
}

}  // namespace neuroshard
