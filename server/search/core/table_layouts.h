// Table layouts: the layouts of each table that a search considers, within the rules.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "common/domain/plan_request.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/core/shard_table.h"

namespace neuroshard {

// A sharding type with its cuts, without the places of the blocks.
struct TableLayout {
  ShardingType type = ShardingType::kTableWise;
  int blocks = 1;     // column blocks
  int holders = 1;    // ranks of row_wise_subset, otherwise 1
  int residency = 0;  // in CompiledRules::residencies()

  bool operator==(const TableLayout&) const = default;
};

// Enumerates layouts by table. Each keeps the rules on this table alone (types, column rule,
// widths, number of shards). Immutable, so thread-safe.
class TableLayouts {
 public:
  // Both arguments must outlive the layouts.
  TableLayouts(const PlanRequest& request, const CompiledRules& rules);

  // Returns every type that the table may have, each with one block first and then with more (all
  // numbers up to 8, then a third more each time). column_wise stands for table_column_wise where
  // both are allowed, and table_row_wise for grid_shard with one block, since they cost the same.
  // May be empty.
  std::vector<TableLayout> Of(int table) const;

  // Returns those of `layouts`, which Of(table) gave, that the rules allow in a residency;
  // data_parallel is in device memory only.
  std::vector<TableLayout> In(int table, int residency, std::vector<TableLayout> layouts) const;

  // Return the type of a table in `blocks` column blocks that are on one rank (host) each; none:
  // not allowed.
  std::optional<ShardingType> OnRanks(int table, int blocks) const {
    if (blocks > rules_.of(table).max_shards) return std::nullopt;
    return TypeOf(table, blocks, ShardingType::kTableWise,
                  {ShardingType::kColumnWise, ShardingType::kTableColumnWise});
  }
  std::optional<ShardingType> OnHosts(int table, int blocks) const {
    return TypeOf(table, blocks, ShardingType::kTableRowWise, {ShardingType::kGridShard});
  }

  // Returns the columns of each block: multiples of kColumnAlignment, as even as can be, with a
  // ragged one last; or TorchRec's blocks where that is the rule.
  std::vector<std::int64_t> Widths(int table, int blocks) const;
  // Writes the same into `widths`, reusing its memory.
  void Widths(int table, int blocks, std::vector<std::int64_t>& widths) const;

  // Returns the shards of a block of `cols` columns in a layout, wherever it goes; on a host, those
  // of the largest host. Adds them, and those of hosts of other sizes, to the table of shards.
  UnitShards Shards(ShardTable& shard_table, int table, const TableLayout& layout,
                    std::int64_t cols) const;

  // Returns whether a shard of the table may have `cols` columns.
  bool AllowsWidth(int table, std::int64_t cols) const {
    return cols >= rules_.of(table).min_column_width && cols <= rules_.of(table).max_column_width;
  }
  // Returns whether columns may move between shards of the table.
  bool CutsAnywhere(int table) const { return rules_.of(table).column_block == 0; }

 private:
  // Returns `whole` for one block if that is allowed, else the first type of `cut` that the rules
  // allow.
  std::optional<ShardingType> TypeOf(int table, int blocks, ShardingType whole,
                                     std::initializer_list<ShardingType> cut) const;
  // Returns the most blocks that the rules allow.
  int MaxBlocks(int table) const;

  const PlanRequest& request_;
  const CompiledRules& rules_;
  std::vector<int> host_sizes_;  // distinct, ascending
};

}  // namespace neuroshard
