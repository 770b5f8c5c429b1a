// Spread of a sharding type: on which ranks the shards are that move together.
#pragma once

#include "common/domain/shard_layout.h"

namespace neuroshard {

enum class Spread {
  kRank,    // one shard on a rank: table_wise, column_wise, table_column_wise
  kHost,    // row blocks on the ranks of a host: table_row_wise, grid_shard
  kRows,    // row blocks on all ranks: row_wise
  kCopies,  // a replica on every rank: data_parallel
  kSubset   // row blocks on some ranks: row_wise_subset
};

constexpr Spread SpreadOf(ShardingType type) {
  switch (type) {
    case ShardingType::kTableRowWise:
    case ShardingType::kGridShard:
      return Spread::kHost;
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

}  // namespace neuroshard
