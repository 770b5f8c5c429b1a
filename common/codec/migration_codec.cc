#include "common/codec/migration_codec.h"

#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "common/codec/field_check.h"
#include "common/codec/plan_codec.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kMaxBudgetBytes = std::int64_t{1} << 60;
constexpr double kMaxPriceMs = 1e9;

void CheckUniqueTables(const v1::Plan& plan, Violations& violations) {
  std::unordered_map<std::string_view, int> first_position;
  for (int i = 0; i < plan.tables_size(); ++i) {
    const auto [first, is_new] = first_position.emplace(plan.tables(i).name(), i);
    if (is_new || plan.tables(i).name().empty()) continue;
    violations.Add(
        fmt::format("migration.previous.tables[{}].name", i),
        fmt::format("must be unique, got {}, which is also migration.previous.tables[{}].name",
                    Quoted(plan.tables(i).name()), first->second));
  }
}

}  // namespace

Migration DecodeMigration(const v1::Migration& message, Violations& violations) {
  const FieldCheck check("migration", violations);
  Migration migration;
  if (message.has_previous()) {
    migration.previous = DecodePlanAt("migration.previous", message.previous(), violations);
    CheckUniqueTables(message.previous(), violations);
  } else {
    check.Fail("previous", "is required");
  }
  if (message.has_budget_bytes()) {
    check.InRange("budget_bytes", message.budget_bytes(), 0, kMaxBudgetBytes);
    migration.budget_bytes = message.budget_bytes();
  }
  check.InRange("price_ms_per_gib", message.price_ms_per_gib(), 0.0, kMaxPriceMs);
  migration.price_ms_per_gib = message.price_ms_per_gib();
  return migration;
}

v1::Migration EncodeMigration(const Migration& migration) {
  v1::Migration message;
  *message.mutable_previous() = EncodePlan(migration.previous);
  if (migration.budget_bytes) message.set_budget_bytes(*migration.budget_bytes);
  message.set_price_ms_per_gib(migration.price_ms_per_gib);
  return message;
}

}  // namespace neuroshard
