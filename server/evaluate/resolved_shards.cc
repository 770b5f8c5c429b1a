#include "server/evaluate/resolved_shards.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

#include "common/domain/table_names.h"
#include "server/evaluate/rules/row_cuts.h"

namespace neuroshard {
namespace {

// A range of at least `least` (0 or 1) of [0, whole). The comparisons are arranged so that no sum
// of two values of the plan is ever formed.
bool CheckRange(std::int64_t offset, std::int64_t size, std::int64_t least, std::int64_t whole,
                const char* offset_name, const char* size_name, ShardPosition position,
                Violations& violations) {
  bool ok = true;
  const auto add = [&](const char* field, std::string description) {
    violations.Add(
        fmt::format("plan.tables[{}].shards[{}].{}", position.table, position.shard, field),
        std::move(description));
  };
  if (offset < 0 || offset > whole - least) {
    add(offset_name,
        fmt::format("must be in [0, {}{}, got {}", whole, least == 0 ? "]" : ")", offset));
    ok = false;
  }
  if (size < least || size > whole) {
    add(size_name, fmt::format("must be in [{}, {}], got {}", least, whole, size));
    ok = false;
  }
  if (ok && offset > whole - size) {
    add(size_name, fmt::format("must be at most {} at {} {} of a table with {}, got {}",
                               whole - offset, offset_name, offset, whole, size));
    ok = false;
  }
  return ok;
}

}  // namespace

bool CheckShardRange(const Table& table, ShardingType type, const Shard& shard, int num_ranks,
                     ShardPosition position, Violations& violations) {
  const bool rows_ok = CheckRange(shard.row_offset, shard.rows, CutsRows(type) ? 0 : 1,
                                  table.num_embeddings, "row_offset", "rows", position, violations);
  const bool cols_ok = CheckRange(shard.col_offset, shard.cols, 1, table.embedding_dim,
                                  "col_offset", "cols", position, violations);
  const bool rank_ok = shard.rank >= 0 && shard.rank < num_ranks;
  if (!rank_ok) {
    violations.Add(fmt::format("plan.tables[{}].shards[{}].rank", position.table, position.shard),
                   fmt::format("must be in [0, {}), got {}", num_ranks, shard.rank));
  }
  return rows_ok && cols_ok && rank_ok;
}

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
