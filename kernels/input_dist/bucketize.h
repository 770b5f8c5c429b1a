// Ids by the block of rows that has them: block_bucketize_sparse_features of FBGEMM, in two steps,
// since the sizes have to be known before ids are put where they are sent from.
#pragma once

#include <cstdint>
#include <span>

namespace neuroshard {

// Blocks of block_rows rows each: block b has the rows from b x block_rows on.
struct RowBlocks {
  std::int64_t block_rows = 1;
  std::int64_t num_blocks = 1;
};

// out[b x lengths.size() + i]: how many of bag i's ids are in block b. Every id is in one of the
// blocks. O(ids).
void CountInBlocks(const RowBlocks& blocks, std::span<const std::int64_t> lengths,
                   std::span<const std::int64_t> ids, std::span<std::int64_t> out);

// Where the ids of each block begin, num_blocks entries, and what they are written to; the same of
// weights, all empty where ids have none.
struct BlockedIds {
  std::span<const std::int64_t> id_begins;
  std::span<std::int64_t> ids;
  std::span<const std::int64_t> weight_begins;
  std::span<float> weights;
};

// Every id less the first row of its block, in the order that it had among the block's. O(ids).
void MoveToBlocks(const RowBlocks& blocks, std::span<const std::int64_t> ids,
                  std::span<const float> weights, const BlockedIds& out);

}  // namespace neuroshard
