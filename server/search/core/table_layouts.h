// Table layouts: the ways of laying out each table that a search considers, within the rules.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "common/domain/plan_request.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/core/shard_table.h"

namespace neuroshard {

// A sharding type with its cuts; where the blocks go is not said.
struct TableLayout {
  ShardingType type = ShardingType::kTableWise;
  int blocks = 1;     // column blocks
  int holders = 1;    // ranks of row_wise_subset, otherwise 1
  int residency = 0;  // in CompiledRules::residencies()

  bool operator==(const TableLayout&) const = default;
};

// Enumerates layouts by table; every one it names keeps the rules on this table alone (types,
// column rule, widths, number of shards). Immutable, so for any number of threads.
class TableLayouts {
 public:
  // Both must outlive it.
  TableLayouts(const PlanRequest& request, const CompiledRules& rules);

  // Every type the table may have, each with one block first and then with more (all numbers up to
  // 8, a third more each time beyond). column_wise stands for table_column_wise where both are
  // allowed, table_row_wise for grid_shard with one block: they cost the same. May be empty.
  std::vector<TableLayout> Of(int table) const;

  // Those of them that the rules allow in a residency, with it; data_parallel in device memory
  // only.
  std::vector<TableLayout> Of(int table, int residency) const {
    return In(table, residency, Of(table));
  }
  // The same of layouts that Of(table) gave.
  std::vector<TableLayout> In(int table, int residency, std::vector<TableLayout> layouts) const;

  // The type of a table in `blocks` column blocks that are on a rank (host) each. None: not
  // allowed.
  std::optional<ShardingType> OnRanks(int table, int blocks) const {
    if (blocks > rules_.of(table).max_shards) return std::nullopt;
    return TypeOf(table, blocks, ShardingType::kTableWise,
                  {ShardingType::kColumnWise, ShardingType::kTableColumnWise});
  }
  std::optional<ShardingType> OnHosts(int table, int blocks) const {
    return TypeOf(table, blocks, ShardingType::kTableRowWise, {ShardingType::kGridShard});
  }

  // Columns of each block: multiples of kColumnAlignment as even as can be, a ragged one last; or
  // TorchRec's blocks where that is the rule.
  std::vector<std::int64_t> Widths(int table, int blocks) const;
  // The same into `widths`, whose memory is kept.
  void Widths(int table, int blocks, std::vector<std::int64_t>& widths) const;

  // The shards of a block of `cols` columns in a layout, wherever it goes: on a host, those of the
  // largest one. Adds them to the table of shards, and those of hosts of other sizes.
  UnitShards Shards(ShardTable& shard_table, int table, const TableLayout& layout,
                    std::int64_t cols) const;

  // Whether a shard of the table may have so many of its columns.
  bool AllowsWidth(int table, std::int64_t cols) const {
    return cols >= rules_.of(table).min_column_width && cols <= rules_.of(table).max_column_width;
  }
  // Whether columns may go from one shard of the table to another.
  bool CutsAnywhere(int table) const { return rules_.of(table).column_block == 0; }

 private:
  // The type of one block, if it may be that, or the first that the rules allow of those that cut
  // columns.
  std::optional<ShardingType> TypeOf(int table, int blocks, ShardingType whole,
                                     std::initializer_list<ShardingType> cut) const;
  // How many blocks the rules allow at most.
  int MaxBlocks(int table) const;

  const PlanRequest& request_;
  const CompiledRules& rules_;
  std::vector<int> host_sizes_;  // distinct, ascending
};

}  // namespace neuroshard
