// Unit: what local search moves, the shards of a block of columns that go to one place together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "server/evaluate/lay_out.h"
#include "server/search/core/shard_table.h"

namespace neuroshard {

// Some columns of a table, all rows of them. Which columns is decided last, when a plan is made of
// the units: they cost the same.
struct Unit {
  int table = 0;
  ShardingType type = ShardingType::kTableWise;
  int place = 0;  // kRank: the rank; kOneHost: the host; kSubset: its number; otherwise 0
  std::int64_t cols = 0;
  UnitShards shards = {};
  int residency = 0;  // in CompiledRules::residencies(); all units of a table have the same

  Spread spread() const { return SpreadOf(type); }
};

// The shards of all units together.
inline std::size_t CountShards(std::span<const Unit> units) {
  std::size_t count = 0;
  for (const Unit& unit : units) count += static_cast<std::size_t>(unit.shards.count);
  return count;
}

// A plan of more shards takes longer to make and to price than a search may go on once it is to
// stop.
inline constexpr std::size_t kMaxShardsAtStop = 30'000;

}  // namespace neuroshard
