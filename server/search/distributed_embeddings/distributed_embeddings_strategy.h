// `basic`, `memory_balanced`, `memory_optimized`: the plans of NVIDIA Merlin
// distributed-embeddings, and its placement by itself.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/domain/plan_request.h"
#include "server/search/core/search_context.h"

namespace neuroshard {

// The placement of distributed-embeddings 1.0.0: which tables it cuts, into which columns, and
// which rank gets which slices (DistEmbeddingStrategy: init_table_groups,
// create_col_sliced_configs, apply_strategy, _merge_slices, _maybe_offload). It considers only
// elements, rows x columns.

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

// Returns the group of a table. Replication is tested first; a threshold that is absent or 0 is
// off, and on one rank both are.
SlicingGroup SlicingGroupOf(const TableExtent& table, const DistributedEmbeddingsOptions& options,
                            int num_ranks);

// Returns the widths that each of `tables` is cut into, in column order; {cols} where it stays
// whole.
//
// A table is cut into the smallest power of two of slices that have at most `threshold_elements`
// elements each, but into no more slices than ranks or granules, so slices may exceed the
// threshold; the first slices are one granule wider where the granules do not divide evenly. The
// peer's granule is 1 column; with a larger one every cut falls on a multiple of it, and only the
// last slice of a table may end ragged.
//
// Without a threshold nothing is cut as long as there are as many tables as ranks. With fewer, the
// largest size is halved (rounding down) until there are as many sizes as ranks, and the threshold
// is one less than the size that was halved last. It applies to every table, so there may be more
// slices than ranks.
std::vector<std::vector<std::int64_t>> SliceColumns(std::span<const TableExtent> tables,
                                                    std::optional<std::int64_t> threshold_elements,
                                                    int num_ranks, std::int64_t granule);

enum class SlicePlacement {
  // Deals slices in table order to the ranks in turn.
  kBasic,
  // Deals slices in descending (elements, table) forth and back: rank r of W gets the r-th and the
  // (2W - 1 - r)-th of every 2W. So counts are even first, then sizes.
  kMemoryBalanced,
  // Puts slices in descending (elements, table) on the rank with the fewest elements; of equal
  // ranks the one whose list of tables is the least, compared entry by entry. Ranks are numbered at
  // the end, in ascending order of (elements, list).
  kMemoryOptimized,
};

// The slices of a table on one rank, merged into one.
struct RankColumns {
  int rank = 0;
  std::int64_t cols = 0;

  bool operator==(const RankColumns&) const = default;
};

struct PlacedSlices {
  // Holders of each table, ascending. A table's slices go to its holders in column order, so the
  // entries tile the table's columns in this order.
  std::vector<std::vector<RankColumns>> holders;
  // Tables of each rank in the order in which they came there, each once.
  std::vector<std::vector<int>> tables_of_rank;
};

// Places the slices; `widths` is SliceColumns'. Ranks may stay empty (the peer gives up there, if a
// threshold is explicit).
PlacedSlices PlaceSlices(std::span<const TableExtent> tables,
                         const std::vector<std::vector<std::int64_t>>& widths, int num_ranks,
                         SlicePlacement placement);

// Returns, by rank, the tables that the peer looks up on the host, in the order of tables_of_rank:
// in ascending elements (of equal ones the first of the list), all from where the sum exceeds
// `gpu_embedding_size` elements on.
std::vector<std::vector<int>> OffloadedTables(std::span<const TableExtent> tables,
                                              const PlacedSlices& placed,
                                              std::int64_t gpu_embedding_size);

// Makes the plan of SliceColumns and PlaceSlices under the request's distributed_embeddings
// options, with cuts at multiples of kColumnAlignment. Replicated tables become data_parallel, row
// sliced ones row_wise_subset over all ranks, which has the peer's blocks of rows. Under
// gpu_embedding_size, tables with an offloaded slice have kOffload; INVALID_ARGUMENT where hosts
// have no memory. The strategy considers no other memory and no cost: FAILED_PRECONDITION, which
// proves nothing, where its plan does not fit. Where a table is larger than every rank and no
// column_slice_threshold is stated, it takes the largest of half the largest table, a quarter and
// so on whose plan fits.
Status RunDistributedEmbeddings(SearchContext& context, SlicePlacement placement);

}  // namespace neuroshard
