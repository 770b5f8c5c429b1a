#include "server/evaluate/resolved_shards.h"

#include <fmt/format.h>

#include <cstddef>

#include "common/base/violations.h"
#include "common/domain/table_names.h"
#include "server/cost/shard_features.h"
#include "server/evaluate/rules/row_cuts.h"
#include "server/evaluate/shard_range.h"

namespace neuroshard {

StatusOr<std::vector<ResolvedShard>> ResolveShards(const PlanRequest& request, const Plan& plan) {
  const std::vector<int> table_of = TablesOf(plan, request.tables);
  const RowCuts row_cuts(request);
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
    const ShardLayout layout = LayoutOf(table_plan, row_cuts.of(table_of[t]));
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

std::vector<std::vector<ShardFeatures>> FeaturesByRank(const std::vector<ResolvedShard>& shards,
                                                       int num_ranks) {
  std::vector<std::vector<ShardFeatures>> of_ranks(static_cast<std::size_t>(num_ranks));
  for (const ResolvedShard& s : shards) {
    of_ranks[static_cast<std::size_t>(s.shard->rank)].push_back(
        FeaturesOf(*s.table, s.layout, s.shard->rows, s.shard->cols));
  }
  return of_ranks;
}

}  // namespace neuroshard
