// How NVIDIA Merlin distributed-embeddings 1.0.0 decides which tables to cut, into which columns,
// and which rank gets which slices (DistEmbeddingStrategy: init_table_groups,
// create_col_sliced_configs, apply_strategy, _merge_slices, _maybe_offload). Nothing but elements,
// rows x columns, counts.
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

enum class SlicePlacement {
  // Slices in table order, dealt to the ranks in turn.
  kBasic,
  // Slices in descending (elements, table), dealt forth and back: rank r of W gets the r-th and the
  // (2W - 1 - r)-th of every 2W. Even counts first, even sizes second.
  kMemoryBalanced,
  // Slices in descending (elements, table), each to the rank with the fewest elements; of equal
  // ranks the one whose list of tables is the least, compared entry by entry. Ranks are numbered at
  // the end, in ascending order of (elements, list).
  kMemoryOptimized,
};

// What one rank holds of a table: its slices there, merged into one.
struct RankColumns {
  int rank = 0;
  std::int64_t cols = 0;

  bool operator==(const RankColumns&) const = default;
};

struct PlacedSlices {
  // For each table its holders, ascending. A table's slices go to its holders in column order, so
  // the entries tile the table's columns as they stand.
  std::vector<std::vector<RankColumns>> holders;
  // For each rank its tables in the order in which they came there, each once.
  std::vector<std::vector<int>> tables_of_rank;
};

// `widths` is SliceColumns'. Ranks may stay empty (there, with an explicit threshold, the peer
// gives up).
PlacedSlices PlaceSlices(std::span<const TableExtent> tables,
                         const std::vector<std::vector<std::int64_t>>& widths, int num_ranks,
                         SlicePlacement placement);

// For each rank those of its tables that the peer looks up on the host, in the order of
// tables_of_rank: of what the rank holds, ascending in elements (of equal ones the first of the
// list), everything from where the sum exceeds `gpu_embedding_size` elements on.
std::vector<std::vector<int>> OffloadedTables(std::span<const TableExtent> tables,
                                              const PlacedSlices& placed,
                                              std::int64_t gpu_embedding_size);

}  // namespace neuroshard
