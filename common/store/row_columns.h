// Values of the domain in rows: the members that NS_COLUMNS lists, each in the column of its name.
#pragma once

#include <fmt/ranges.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "common/base/status.h"
#include "common/domain/fields.h"
#include "common/domain/measurement.h"
#include "common/domain/vocabulary.h"
#include "common/store/sql_database.h"

namespace neuroshard {

// Arrays, series and environments as JSON text; doubles come back bit for bit. The text of an
// environment is without measured_at_unix_ms, which differs in every record and has a column of its
// own: equal environments give equal text. T: one of those in row_columns.cc.
template <typename T>
std::string ToRowText(const T& value);
// DATA_LOSS when the text is not what ToRowText writes.
template <typename T>
StatusOr<T> FromRowText(const std::string& text);

// A tuple of NamedMembers.
template <typename T>
inline constexpr std::tuple<> kColumns = {};
#define NS_COLUMNS(type, ...) \
  template <>                 \
  inline constexpr auto kColumns<type> = NS_MEMBERS(type, __VA_ARGS__)

// Words are text, integers of 64 bits without a sign those with the same bits, lists and structs
// JSON (ToRowText), and what is optional and not there an empty text.
template <typename V>
SqlValue ToSql(const V& value) {
  if constexpr (std::is_enum_v<V>) {
    return std::string(ToText(value));
  } else if constexpr (std::is_integral_v<V>) {
    return static_cast<std::int64_t>(value);
  } else if constexpr (requires { value.has_value(); }) {
    return value ? ToRowText(*value) : std::string();
  } else if constexpr (std::is_convertible_v<V, SqlValue>) {
    return value;
  } else {
    return ToRowText(value);
  }
}

// DATA_LOSS where the column holds no such value.
template <typename V>
Status FromSql(const SqlColumns& row, int column, V& value) {
  if constexpr (std::is_enum_v<V>) {
    const std::optional<V> word = FromText<V>(row.Text(column));
    if (!word) return DataLoss("a stored word is damaged: {}", row.Text(column));
    value = *word;
  } else if constexpr (std::is_integral_v<V>) {
    value = static_cast<V>(row.Integer(column));
  } else if constexpr (std::is_floating_point_v<V>) {
    value = row.Real(column);
  } else if constexpr (std::is_same_v<V, std::string>) {
    value = row.Text(column);
  } else if constexpr (requires { value.has_value(); }) {
    const std::string text = row.Text(column);
    if (!text.empty()) {
      NS_ASSIGN_OR_RETURN(value, FromRowText<typename V::value_type>(text));
    }
  } else {
    NS_ASSIGN_OR_RETURN(value, FromRowText<V>(row.Text(column)));
  }
  return absl::OkStatus();
}

// "sample_id, batch_size, ..."
template <typename T>
std::string ColumnNames() {
  std::vector<std::string_view> names;
  const T value{};
  ForEachMember(value, kColumns<T>,
                [&names](const char* name, const auto&) { names.push_back(name); });
  return fmt::format("{}", fmt::join(names, ", "));
}

template <typename T>
void AddColumns(const T& value, SqlRow& row) {
  ForEachMember(value, kColumns<T>, [&row](const char* name, const auto& member) {
    row.emplace_back(name, ToSql(member));
  });
}

// From columns `first` on, in the order of ColumnNames.
template <typename T>
Status TakeColumns(const SqlColumns& row, int first, T& value) {
  Status status;
  ForEachMember(value, kColumns<T>, [&](const char*, auto& member) {
    if (status.ok()) status = FromSql(row, first++, member);
  });
  return status;
}

}  // namespace neuroshard
