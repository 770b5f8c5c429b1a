// How NVIDIA Merlin distributed-embeddings 1.0.0 decides which tables to cut, and into which
// columns (DistEmbeddingStrategy: init_table_groups, create_col_sliced_configs). Sizes and
// thresholds are in elements, rows x columns.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/domain/plan_request.h"

namespace neuroshard {

struct TableExtent {
  std::int64_t rows = 0;
  std::int64_t cols = 0;

  double elements() const { return static_cast<double>(rows) * static_cast<double>(cols); }
};

enum class SlicingGroup {
  kReplicated,   // at most the data parallel threshold
  kRowSliced,    // at least the row slice threshold: rows over all ranks
  kTableSliced,  // everything else: whole, or cut in columns
};

// Replication is asked first; a threshold of none or 0 is off, and on one rank both are.
SlicingGroup SlicingGroupOf(const TableExtent& table, const DistributedEmbeddingsOptions& options,
                            int num_ranks);

// The widths that each of `tables` is cut into, in column order; {cols} where it stays whole.
//
// A table is cut into the smallest power of two of slices that have at most `threshold_elements`
// elements each, but into no more slices than ranks or granules; the first slices are one granule
// wider where the granules do not divide evenly. So slices may exceed the threshold. The peer's
// granule is 1 column; with a larger one every cut falls on a multiple of it, and only the last
// slice of a table may end ragged.
//
// Without a threshold nothing is cut as long as there are as many tables as ranks. With fewer, the
// largest size is halved (rounding down) until there are as many sizes as ranks, and the threshold
// is one less than the size halved last. It counts for every table, so there may be more slices
// than ranks.
std::vector<std::vector<std::int64_t>> SliceColumns(std::span<const TableExtent> tables,
                                                    std::optional<std::int64_t> threshold_elements,
                                                    int num_ranks, std::int64_t granule);

}  // namespace neuroshard
