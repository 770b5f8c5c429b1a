#include "server/evaluate/resolved_shards.h"

#include <fmt/format.h>

#include <cstddef>
#include <string_view>
#include <unordered_map>

#include "common/base/violations.h"
#include "server/evaluate/shard_range.h"
#include "server/features/shard_features.h"

namespace neuroshard {

StatusOr<std::vector<ResolvedShard>> ResolveShards(const PlanRequest& request, const Plan& plan) {
  std::unordered_map<std::string_view, const Table*> by_name;
  for (const Table& table : request.tables) by_name.emplace(table.name, &table);
  std::vector<ResolvedShard> resolved;
  Violations violations;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const TablePlan& table_plan = plan.tables[t];
    const auto found = by_name.find(table_plan.name);
    if (found == by_name.end()) {
      violations.Add(fmt::format("plan.tables[{}].name", t),
                     fmt::format("'{}' is not a table of the request", table_plan.name));
      continue;
    }
    const ShardLayout layout = LayoutOf(table_plan);
    for (std::size_t s = 0; s < table_plan.shards.size(); ++s) {
      const Shard& shard = table_plan.shards[s];
      if (CheckShardRange(*found->second, layout.type, shard, request.topology.num_ranks(), {t, s},
                          violations)) {
        resolved.push_back({found->second, layout, &shard});
      }
    }
  }
  if (!violations.empty()) return violations.ToStatus();
  return resolved;
}

ShardFeatures FeaturesOf(const ResolvedShard& shard) {
  return FeaturesOf(*shard.table, shard.layout, shard.shard->rows, shard.shard->cols);
}

}  // namespace neuroshard
