// Check that a shard lies in its table and on a rank: the part of legality that pricing needs too.
#pragma once

#include <cstddef>

#include "common/base/violations.h"
#include "common/domain/plan.h"
#include "common/domain/table.h"

namespace neuroshard {

// Position of a shard in a plan; its path is made only for a violation.
struct ShardPosition {
  std::size_t table = 0;  // in Plan::tables
  std::size_t shard = 0;  // in TablePlan::shards
};

// Adds a violation, under "plan.tables[3].shards[0]", for every range of `shard` that is empty or
// leaves `table`, and for a rank outside [0, num_ranks). A shard of a type that cuts rows may have
// none of them. Returns whether there was no violation. Any values are fine.
bool CheckShardRange(const Table& table, ShardingType type, const Shard& shard, int num_ranks,
                     ShardPosition position, Violations& violations);

}  // namespace neuroshard
