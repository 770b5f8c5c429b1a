// Layouts by sharding type: the rectangles of a table, and the ranks that they are on.
//
// | type              | shards                                       | ranks                    |
// |-------------------|----------------------------------------------|--------------------------|
// | table_wise        | the table                                    | one                      |
// | column_wise       | column blocks                                | any, may repeat          |
// | row_wise          | TorchRec's row blocks (RowCut), one a rank   | 0 .. ranks - 1           |
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
#include <span>
#include <vector>

#include "common/domain/plan.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {

// The layout of a shard: what its cost depends on besides its size.
struct ShardLayout {
  ShardingType type = ShardingType::kTableWise;
  ComputeKernel kernel = ComputeKernel::kFused;
  int row_shards = 1;            // parts that the rows are cut into; 1 unless the type cuts rows
  double cache_load_factor = 0;  // TablePlan's

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

  bool operator==(const RowCut&) const = default;
};

// The blocks of row_wise on `ranks` ranks: CeilBlocks, or as many buckets on every rank and one
// more on the first (TorchRec 1.9.2, _calculate_rw_shard_sizes_and_offsets of sharding_plan.py; 10
// rows in buckets of 2 on 4 ranks: 4, 2, 2, 2). A rank has no rows only without buckets.
std::vector<Block> RowWiseBlocks(std::int64_t rows, int ranks, const RowCut& cut);

// HugeCTR's and distributed-embeddings' blocks: total / parts each, one more for the first total %
// parts (7 on 4: 2, 2, 2, 1). parts >= 1.
std::vector<Block> EvenBlocks(std::int64_t total, int parts);

// Blocks of `width` columns, the last one with what is left (sharding_plan.py's column_wise; width
// >= 1).
std::vector<Block> WidthBlocks(std::int64_t total, std::int64_t width);

// The one block width that TorchRec's planner tries for a table (sharding_plan.py: the first width
// in [min(min_partition, dim), dim) that divides dim and is a multiple of 4; else dim).
std::int64_t TorchRecColumnWidth(std::int64_t dim, std::int64_t min_partition);

// Of the shards of a table: row_shards counts those of the first column block. Any shards; illegal
// ones give something, never a fault.
ShardLayout LayoutOf(ShardingType type, ComputeKernel kernel, std::span<const Shard> shards);
inline ShardLayout LayoutOf(const TablePlan& plan) {
  ShardLayout layout = LayoutOf(plan.sharding_type, plan.compute_kernel, plan.shards);
  layout.cache_load_factor = plan.cache_load_factor;
  return layout;
}

}  // namespace neuroshard
