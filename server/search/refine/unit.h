// What local search moves: a part of a table that goes to one place as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/domain/shard_layout.h"

namespace neuroshard {

// Where the shards of a unit are.
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

// The shards of a unit, by ids of the ShardBook: [0, full_end) are alike, then [full_end, rest_end)
// with fewer rows, then [rest_end, count) without any.
struct UnitShards {
  int full = 0;
  int rest = 0;
  int empty = 0;
  int full_end = 1;
  int rest_end = 1;
  int count = 1;

  int at(int i) const { return i < full_end ? full : i < rest_end ? rest : empty; }
  bool operator==(const UnitShards&) const = default;
};

// Columns of a table, all rows of them. Which columns is decided last, when a plan is made of the
// units: they cost the same.
struct Unit {
  int table = 0;
  ShardingType type = ShardingType::kTableWise;
  int place = 0;  // kRank: the rank; kHost: the host; kSubset: the subset's number; otherwise 0
  std::int64_t cols = 0;
  UnitShards shards = {};

  Spread spread() const { return SpreadOf(type); }
};

// Of all units together.
inline std::size_t CountShards(std::span<const Unit> units) {
  std::size_t count = 0;
  for (const Unit& unit : units) count += static_cast<std::size_t>(unit.shards.count);
  return count;
}

// A plan of more shards takes longer to make and to price than a search may go on once it is to
// stop.
inline constexpr std::size_t kMostShardsAtStop = 30'000;

}  // namespace neuroshard
