#include "server/evaluate/lay_out.h"

#include <cstddef>

namespace neuroshard {

std::vector<Block> RowBlocks(ShardingType type, std::int64_t rows, int parts, const RowCut& cut) {
  if (!CutsRows(type)) return std::vector<Block>(static_cast<std::size_t>(parts), Block{0, rows});
  if (type == ShardingType::kRowWise) return RowWiseBlocks(rows, parts, cut);
  return type == ShardingType::kRowWiseSubset ? EvenBlocks(rows, parts) : CeilBlocks(rows, parts);
}

std::vector<Shard> LayOut(const Table& table, ShardingType type, std::span<const Block> columns,
                          std::span<const int> places, const std::vector<HostRanks>& hosts,
                          const RowCut& cut) {
  const Spread spread = SpreadOf(type);
  const bool on_subset = spread == Spread::kSubset;
  std::vector<Shard> shards;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    HostRanks ranks = {0, hosts.back().first + hosts.back().count};
    if (spread == Spread::kRank) ranks = {places[i], 1};
    if (spread == Spread::kOneHost) ranks = hosts[static_cast<std::size_t>(places[i])];
    if (on_subset) ranks.count = static_cast<int>(places.size());
    int next = 0;
    for (const Block& rows : RowBlocks(type, table.num_embeddings, ranks.count, cut)) {
      const int rank = on_subset ? places[static_cast<std::size_t>(next)] : ranks.first + next;
      shards.push_back({rows.offset, rows.size, columns[i].offset, columns[i].size, rank});
      ++next;
    }
  }
  return shards;
}

Plan UnplacedTables(const PlanRequest& request) {
  Plan plan;
  plan.world_size = request.topology.num_ranks();
  plan.local_world_size = request.topology.ranks_per_host();
  plan.tables.reserve(request.tables.size());
  for (const Table& table : request.tables) {
    TablePlan& entry = plan.tables.emplace_back();
    entry.name = table.name;
    entry.module = table.module;
  }
  return plan;
}

}  // namespace neuroshard
