// Which rank gets which column slices, as distributed-embeddings 1.0.0 decides it
// (DistEmbeddingStrategy: apply_strategy, _merge_slices, _maybe_offload). Nothing but the slices'
// elements counts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "server/search/distributed_embeddings/column_slicing.h"

namespace neuroshard {

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
