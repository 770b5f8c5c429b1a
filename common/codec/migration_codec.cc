#include "common/codec/migration_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "common/codec/field_check.h"
#include "common/codec/message_fields.h"
#include "common/codec/plan_codec.h"
#include "common/codec/table_codec.h"
#include "common/domain/table_names.h"

namespace neuroshard {

NS_FIELDS(Migration, budget_bytes, price_ms_per_gib, only_types);

namespace {

constexpr std::int64_t kMaxBudgetBytes = std::int64_t{1} << 60;
constexpr double kMaxPriceMs = 1e9;

// A table keeps its kind: pooled and unpooled ones are sharded by different modules.
void CheckKinds(const std::vector<Table>& tables, const v1::Plan& message, const Plan& plan,
                Violations& violations) {
  const std::vector<int> table_of = TablesOf(plan, tables);
  for (std::size_t i = 0; i < table_of.size(); ++i) {
    const auto stated = FromText<TableKind>(message.tables(static_cast<int>(i)).kind());
    if (table_of[i] < 0 || !stated) continue;
    const TableKind kind = tables[static_cast<std::size_t>(table_of[i])].kind;
    if (*stated == kind) continue;
    violations.Add(
        fmt::format("migration.previous.tables[{}].kind", i),
        fmt::format("must be {} as in the request, got {}", ToText(kind), ToText(*stated)));
  }
}

void NameAsTables(const std::vector<Table>& tables, Plan& plan) {
  const std::vector<int> table_of = TablesOf(plan, tables);
  for (std::size_t i = 0; i < table_of.size(); ++i) {
    if (table_of[i] < 0) continue;
    const Table& table = tables[static_cast<std::size_t>(table_of[i])];
    plan.tables[i].module = table.module;
    plan.tables[i].name = table.name;
  }
}

}  // namespace

Migration DecodeMigration(const v1::Migration& message, const std::vector<Table>& tables,
                          Violations& violations) {
  const FieldCheck check("migration", violations);
  Migration migration;
  if (message.has_previous()) {
    migration.previous = DecodePlanAt("migration.previous", message.previous(), violations);
    CheckUniqueNames(message.previous().tables(), "migration.previous.tables", violations);
    CheckTilings("migration.previous", message.previous(), migration.previous, violations);
    NameAsTables(tables, migration.previous);
    CheckKinds(tables, message.previous(), migration.previous, violations);
    if (migration.previous.tables.empty()) check.Fail("previous", "has no tables");
  } else {
    check.Fail("previous", "is required");
  }
  if (message.has_budget_bytes()) {
    check.InRange("budget_bytes", message.budget_bytes(), 0, kMaxBudgetBytes);
    migration.budget_bytes = message.budget_bytes();
  }
  check.InRange("price_ms_per_gib", message.price_ms_per_gib(), 0.0, kMaxPriceMs);
  migration.price_ms_per_gib = message.price_ms_per_gib();
  for (int i = 0; i < message.only_types_size(); ++i) {
    const std::string field = fmt::format("only_types[{}]", i);
    const std::optional<ShardingType> type = FromText<ShardingType>(message.only_types(i));
    const auto first = std::find(migration.only_types.begin(), migration.only_types.end(), type);
    if (!type) {
      check.Fail(field, NotAWord<ShardingType>(message.only_types(i)));
    } else if (first != migration.only_types.end()) {
      check.Fail(field, fmt::format("lists '{}' twice", message.only_types(i)));
    } else {
      migration.only_types.push_back(*type);
    }
  }
  std::sort(migration.only_types.begin(), migration.only_types.end());
  return migration;
}

v1::Migration EncodeMigration(const Migration& migration) {
  v1::Migration message;
  *message.mutable_previous() = EncodePlan(migration.previous);
  PutFields(migration, message);
  return message;
}

}  // namespace neuroshard
