#include "server/evaluate/lay_out.h"

#include <cstddef>

namespace neuroshard {
namespace {

// Blocks of rows, one a rank from `first` on.
void AddRows(const std::vector<Block>& rows, const Block& columns, int first,
             std::vector<Shard>& shards) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    shards.push_back(
        {rows[i].offset, rows[i].size, columns.offset, columns.size, first + static_cast<int>(i)});
  }
}

}  // namespace

std::vector<Shard> LayOut(const Table& table, ShardingType type, std::span<const Block> columns,
                          std::span<const int> places, const std::vector<HostRanks>& hosts,
                          const RowCut& cut) {
  const std::int64_t rows = table.num_embeddings;
  const int num_ranks = hosts.back().first + hosts.back().count;
  std::vector<Shard> shards;
  switch (type) {
    case ShardingType::kTableWise:
    case ShardingType::kColumnWise:
    case ShardingType::kTableColumnWise:
      for (std::size_t i = 0; i < columns.size(); ++i) {
        shards.push_back({0, rows, columns[i].offset, columns[i].size, places[i]});
      }
      break;
    case ShardingType::kRowWise:
      AddRows(RowWiseBlocks(rows, num_ranks, cut), columns.front(), 0, shards);
      break;
    case ShardingType::kDataParallel:
      AddRows(std::vector<Block>(static_cast<std::size_t>(num_ranks), Block{0, rows}),
              columns.front(), 0, shards);
      break;
    case ShardingType::kTableRowWise:
    case ShardingType::kGridShard:
      for (std::size_t i = 0; i < columns.size(); ++i) {
        const HostRanks& host = hosts[static_cast<std::size_t>(places[i])];
        AddRows(CeilBlocks(rows, host.count), columns[i], host.first, shards);
      }
      break;
    case ShardingType::kRowWiseSubset: {
      const std::vector<Block> blocks = EvenBlocks(rows, static_cast<int>(places.size()));
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        shards.push_back({blocks[i].offset, blocks[i].size, columns.front().offset,
                          columns.front().size, places[i]});
      }
      break;
    }
  }
  return shards;
}

}  // namespace neuroshard
