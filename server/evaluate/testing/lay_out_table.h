// A plan's entry for a table, for tests.
#pragma once

#include <span>
#include <vector>

#include "server/evaluate/lay_out.h"
#include "server/evaluate/rules/compiled_rules.h"

namespace neuroshard {

// The shards of LayOut, with the type's kernel.
inline TablePlan LayOutTable(const Table& table, ShardingType type, std::span<const Block> columns,
                             std::span<const int> places, const std::vector<HostRanks>& hosts,
                             const RowCut& cut = {}) {
  return {table.name, table.module, type, KernelOf(type),
          LayOut(table, type, columns, places, hosts, cut)};
}

}  // namespace neuroshard
