#include "server/search/refine/table_types.h"

#include <algorithm>
#include <cstddef>

namespace neuroshard {

TableTypes::TableTypes(const PlanRequest& request, const CostModelInfo& info) {
  const Constraints& constraints = request.constraints;
  const std::vector<ShardingType>& usual =
      constraints.sharding_types.empty() ? info.sharding_types : constraints.sharding_types;
  std::array<bool, kWords<ShardingType>.size()> by_default{};
  for (const ShardingType type : usual) by_default[static_cast<std::size_t>(type)] = true;
  allowed_.assign(request.tables.size(), by_default);
  std::vector<bool> named(request.tables.size(), false);
  for (const TableRule& rule : constraints.tables) {
    if (rule.sharding_types.empty()) continue;
    for (const int table : rule.tables) {
      auto& allowed = allowed_[static_cast<std::size_t>(table)];
      if (!named[static_cast<std::size_t>(table)]) allowed.fill(true);
      named[static_cast<std::size_t>(table)] = true;
      for (std::size_t type = 0; type < allowed.size(); ++type) {
        allowed[type] = allowed[type] &&
                        std::find(rule.sharding_types.begin(), rule.sharding_types.end(),
                                  static_cast<ShardingType>(type)) != rule.sharding_types.end();
      }
    }
  }
}

std::optional<ShardingType> TableTypes::OnRanks(int table, int pieces) const {
  if (pieces == 1 && Allows(table, ShardingType::kTableWise)) return ShardingType::kTableWise;
  if (Allows(table, ShardingType::kColumnWise)) return ShardingType::kColumnWise;
  if (Allows(table, ShardingType::kTableColumnWise)) return ShardingType::kTableColumnWise;
  return std::nullopt;
}

}  // namespace neuroshard
