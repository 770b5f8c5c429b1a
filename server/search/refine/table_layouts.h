// The ways of laying out each table that a search considers, within the rules.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/domain/plan_request.h"
#include "server/evaluate/rules/compiled_rules.h"

namespace neuroshard {

// A sharding type with its cuts; where the parts go is not said.
struct TableLayout {
  ShardingType type = ShardingType::kTableWise;
  int blocks = 1;   // column blocks
  int holders = 1;  // ranks of row_wise_subset, otherwise 1

  bool operator==(const TableLayout&) const = default;
};

class TableLayouts {
 public:
  // Both must outlive it.
  TableLayouts(const PlanRequest& request, const CompiledRules& rules)
      : request_(request), rules_(rules) {}

  // Every type the table may have, each with one block first and then with more (all numbers up to
  // 8, a third more each time beyond). column_wise stands for table_column_wise where both are
  // allowed, table_row_wise for grid_shard with one block: they cost the same. May be empty.
  std::vector<TableLayout> Of(int table) const;

  // The type of a table in `pieces` shards that are on a rank (host) each. None: not allowed.
  std::optional<ShardingType> OnRanks(int table, int pieces) const;
  std::optional<ShardingType> OnHosts(int table, int pieces) const;

  // Columns of each block: multiples of kColumnAlignment as even as can be, a ragged one last; or
  // TorchRec's blocks where that is the rule.
  std::vector<std::int64_t> Widths(int table, int blocks) const;
  // The same into `widths`, whose memory is kept.
  void Widths(int table, int blocks, std::vector<std::int64_t>& widths) const;

  // Whether a shard of the table may have so many of its columns.
  bool AllowsWidth(int table, std::int64_t cols) const {
    return cols >= rules_.of(table).min_column_width;
  }
  // Whether columns may go from one shard of the table to another.
  bool CutsAnywhere(int table) const { return rules_.of(table).column_block == 0; }

 private:
  // How many blocks the rules allow, at most.
  int MostBlocks(int table) const;

  const PlanRequest& request_;
  const CompiledRules& rules_;
};

}  // namespace neuroshard
