#include "server/evaluate/resolved_shards.h"

#include <fmt/format.h>

#include <cstddef>

#include "common/base/violations.h"
#include "common/domain/table_names.h"
#include "server/evaluate/shard_range.h"
#include "server/features/shard_features.h"

namespace neuroshard {

StatusOr<std::vector<ResolvedShard>> ResolveShards(const PlanRequest& request, const Plan& plan) {
  const std::vector<int> table_of = TablesOf(plan, request.tables);
  std::vector<ResolvedShard> resolved;
  Violations violations;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const TablePlan& table_plan = plan.tables[t];
    if (table_of[t] < 0) {
      violations.Add(
          fmt::format("plan.tables[{}].name", t),
          TableNames(request.tables).WhyUnresolved(FullName(table_plan.module, table_plan.name)));
      continue;
    }
    const Table& table = request.tables[static_cast<std::size_t>(table_of[t])];
    const ShardLayout layout = LayoutOf(table_plan);
    for (std::size_t s = 0; s < table_plan.shards.size(); ++s) {
      const Shard& shard = table_plan.shards[s];
      if (CheckShardRange(table, layout.type, shard, request.topology.num_ranks(), {t, s},
                          violations)) {
        resolved.push_back({&table, layout, &shard});
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
