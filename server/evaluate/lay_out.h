// Layout: the shards of a table in a sharding type at a given place.
#pragma once

#include <span>
#include <vector>

#include "common/domain/plan.h"
#include "common/domain/shard_layout.h"
#include "common/domain/table.h"
#include "common/domain/topology.h"

namespace neuroshard {

// What common/domain/shard_layout.h says, in a plan's order. `columns` tile the table's columns:
// one block unless the type cuts columns. `places`:
// - table_wise: the rank; column_wise, table_column_wise: a rank for each block;
// - table_row_wise: the host; grid_shard: a host for each block (positions in `hosts`, which are
//   Topology::hosts());
// - row_wise_subset: the ranks, ascending and distinct; row_wise, data_parallel: nothing.
// `cut`: of row_wise.
std::vector<Shard> LayOut(const Table& table, ShardingType type, std::span<const Block> columns,
                          std::span<const int> places, const std::vector<HostRanks>& hosts,
                          const RowCut& cut);

}  // namespace neuroshard
