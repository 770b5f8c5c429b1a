// Layout: the shards of a table in a sharding type at a given place.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "common/domain/shard_layout.h"
#include "common/domain/table.h"
#include "common/domain/topology.h"

namespace neuroshard {

// On which ranks the shards of a block of columns are.
enum class Spread {
  kRank,     // one shard on a rank: table_wise, column_wise, table_column_wise
  kOneHost,  // row blocks on the ranks of a host: table_row_wise, grid_shard
  kRows,     // row blocks on all ranks: row_wise
  kCopies,   // a replica on every rank: data_parallel
  kSubset    // row blocks on some ranks: row_wise_subset
};

constexpr Spread SpreadOf(ShardingType type) {
  switch (type) {
    case ShardingType::kTableRowWise:
    case ShardingType::kGridShard:
      return Spread::kOneHost;
    case ShardingType::kRowWise:
      return Spread::kRows;
    case ShardingType::kDataParallel:
      return Spread::kCopies;
    case ShardingType::kRowWiseSubset:
      return Spread::kSubset;
    case ShardingType::kTableWise:
    case ShardingType::kColumnWise:
    case ShardingType::kTableColumnWise:
      break;
  }
  return Spread::kRank;
}

// The rows of each of `parts` shards of a block of columns. `cut`: of row_wise.
std::vector<Block> RowBlocks(ShardingType type, std::int64_t rows, int parts, const RowCut& cut);

// What common/domain/shard_layout.h says, in a plan's order. `columns` tile the table's columns:
// one block unless the type cuts columns. `places`:
// - table_wise: the rank; column_wise, table_column_wise: a rank for each block;
// - table_row_wise: the host; grid_shard: a host for each block (positions in `hosts`, which are
//   Topology::hosts());
// - row_wise_subset: the ranks, ascending and distinct; row_wise, data_parallel: anything.
// `cut`: of row_wise.
std::vector<Shard> LayOut(const Table& table, ShardingType type, std::span<const Block> columns,
                          std::span<const int> places, const std::vector<HostRanks>& hosts,
                          const RowCut& cut);

// The request's tables, by name alone, on its ranks: a plan to be filled in.
Plan UnplacedTables(const PlanRequest& request);

}  // namespace neuroshard
