// Layouts by sharding type: the rectangles of a table, and the ranks that they are on.
//
// | type              | shards                                       | ranks                    |
// |-------------------|----------------------------------------------|--------------------------|
// | table_wise        | the table                                    | one                      |
// | column_wise       | column blocks                                | any, may repeat          |
// | row_wise          | row blocks by the table's RowCut, one a rank | 0 .. ranks - 1           |
// | table_row_wise    | TorchRec's row blocks, one a rank of a host  | one host's, ascending    |
// | table_column_wise | column blocks                                | of one host, may repeat  |
// | grid_shard        | column blocks, each table_row_wise on a host | host by host             |
// | data_parallel     | the whole table on every rank                | 0 .. ranks - 1           |
// | row_wise_subset   | HugeCTR's row blocks, two holders or more    | ascending, distinct      |
//
// Column blocks ascend and tile the columns, each beginning at a multiple of kColumnAlignment.
// TorchRec keeps row blocks without rows in its lists (5 rows on 4 ranks: 2, 2, 1, 0), and so do
// plans.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/domain/plan.h"
#include "common/domain/table.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {

// The layout of a shard: what its cost depends on besides its size.
struct ShardLayout {
  ShardingType type = ShardingType::kTableWise;
  ComputeKernel kernel = ComputeKernel::kFused;
  int row_shards = 1;            // parts that the rows are cut into; 1 unless the type cuts rows
  double cache_load_factor = 0;  // TablePlan's
  // Row blocks differ on purpose (RowCut::proportion): each gets the ids of its share of the rows
  // also where TorchRec's formulas give every block as many.
  bool in_proportion = false;

  bool operator==(const ShardLayout&) const = default;
};

constexpr bool CutsRows(ShardingType type) {
  return type == ShardingType::kRowWise || type == ShardingType::kTableRowWise ||
         type == ShardingType::kGridShard || type == ShardingType::kRowWiseSubset;
}
constexpr bool CutsColumns(ShardingType type) {
  return type == ShardingType::kColumnWise || type == ShardingType::kTableColumnWise ||
         type == ShardingType::kGridShard;
}

// A part of [0, total).
struct Block {
  std::int64_t offset = 0;
  std::int64_t size = 0;

  bool operator==(const Block&) const = default;
};

// TorchRec's row blocks: ceil(total / parts) each until nothing is left (10 on 4: 3, 3, 3, 1; 5 on
// 4: 2, 2, 1, 0). parts >= 1.
std::vector<Block> CeilBlocks(std::int64_t total, int parts);

// How row_wise cuts a table.
struct RowCut {
  // Rows of a bucket, which is not cut; divides the table's. 0: no buckets.
  std::int64_t multiple = 0;
  // What the rows of ranks are in proportion to, and how much of it each rank has (0 or more).
  // None and null: ranks have as many rows as each other.
  std::optional<RowProportion> proportion = {};
  std::shared_ptr<const std::vector<std::int64_t>> weights = {};
  // Rules ask for two proportions: no cut keeps both. The blocks are those of the first.
  bool contradictory = false;

  // Neither buckets nor a proportion: TorchRec's blocks, as those of any type that cuts rows.
  bool plain() const { return multiple == 0 && !proportion; }
  bool operator==(const RowCut&) const = default;
};

// The blocks of row_wise on `ranks` ranks:
// - of a plain cut CeilBlocks;
// - of buckets as many on every rank and one more on the first (TorchRec 1.9.2,
//   _calculate_rw_shard_sizes_and_offsets of sharding_plan.py; 10 rows in buckets of 2 on 4 ranks:
//   4, 2, 2, 2);
// - with a proportion ProportionalBlocks of the rows, or of the buckets. `ranks` is the number of
//   weights.
std::vector<Block> RowWiseBlocks(std::int64_t rows, int ranks, const RowCut& cut);

// `total` in proportion to the weights (0 or more), whole numbers by largest remainders: each block
// has its quota rounded down, and what is left goes one each to the largest remainders, of equal
// ones to the first (10 by 2, 2, 1: 4, 4, 2; 9: 4, 3, 2). So blocks are within one of their quotas,
// those of equal weights within one of each other, and equal weights give EvenBlocks. All weights
// 0 count as equal. At least one weight. O(weights).
std::vector<Block> ProportionalBlocks(std::int64_t total, std::span<const std::int64_t> weights);

// Whether a table of the type that is cut so has its rows in proportion.
inline bool IsInProportion(ShardingType type, const RowCut& cut) {
  return type == ShardingType::kRowWise && cut.proportion.has_value();
}

// HugeCTR's and distributed-embeddings' blocks: total / parts each, one more for the first total %
// parts (7 on 4: 2, 2, 2, 1). parts >= 1.
std::vector<Block> EvenBlocks(std::int64_t total, int parts);

// Blocks of `width` columns, the last one with what is left (sharding_plan.py's column_wise; width
// >= 1).
std::vector<Block> WidthBlocks(std::int64_t total, std::int64_t width);

// The one block width that TorchRec's planner tries for a table (sharding_plan.py: the first width
// in [min(min_partition, dim), dim) that divides dim and is a multiple of 4; else dim).
std::int64_t TorchRecColumnWidth(std::int64_t dim, std::int64_t min_partition);

// The layout of a table's shards: row_shards counts those of the first column block. Any shards;
// illegal ones give something, never a fault.
ShardLayout LayoutOf(ShardingType type, ComputeKernel kernel, std::span<const Shard> shards);
inline ShardLayout LayoutOf(const TablePlan& plan, const RowCut& cut = {}) {
  ShardLayout layout = LayoutOf(plan.sharding_type, plan.compute_kernel, plan.shards);
  layout.cache_load_factor = plan.cache_load_factor;
  layout.in_proportion = IsInProportion(plan.sharding_type, cut);
  return layout;
}

// Row blocks that would have as many ids each as the shard, were all of them like it: row_shards,
// but for blocks in proportion, of which one with half of the rows counts as one of two (infinite
// without rows).
inline double EqualBlocks(const ShardLayout& layout, std::int64_t rows, std::int64_t table_rows) {
  if (!layout.in_proportion) return layout.row_shards;
  if (rows == 0) return std::numeric_limits<double>::infinity();
  return static_cast<double>(table_rows) / static_cast<double>(rows);
}

// Whether ranks add partial sums: the plan cuts rows of a pooled table.
bool AddsPartialSums(const Plan& plan, const std::vector<Table>& tables);

}  // namespace neuroshard
