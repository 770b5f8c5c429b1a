// Ids by the block of rows that has them: block_bucketize_sparse_features of FBGEMM, in two steps,
// since the sizes have to be known before ids are put where they are sent from.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace neuroshard {

// out[b x lengths.size() + i]: how many of bag i's ids are in block b, which has the rows from
// b x block_rows on. Every id is in one of the blocks. O(ids).
void CountInBlocks(std::int64_t block_rows, std::span<const std::int64_t> lengths,
                   std::span<const std::int64_t> ids, std::span<std::int64_t> out);

// Where the ids of each block begin, and what they are written to; the same of weights, all empty
// where ids have none.
struct BlockedIds {
  std::span<const std::int64_t> id_begins;
  std::span<std::int64_t> ids;
  std::span<const std::int64_t> weight_begins;
  std::span<float> weights;
};

// Every id less the first row of its block, in the order that it had among the block's. O(ids).
void MoveToBlocks(std::int64_t block_rows, std::span<const std::int64_t> ids,
                  std::span<const float> weights, const BlockedIds& out);

// Where the values of each row begin, and behind the last one where they end. num_bags > 0 divides
// the number of lengths. O(lengths).
std::vector<std::int64_t> RowBegins(std::span<const std::int64_t> lengths, std::int64_t num_bags);

// Rows in the given order: out row i is row order[i]. `out` has as many lengths as these rows.
void PermuteLengths(std::span<const std::int64_t> lengths, std::int64_t num_bags,
                    std::span<const std::size_t> order, std::span<std::int64_t> out);

// Values of rows in the given order; `begins` are RowBegins of their lengths. Returns how many were
// written.
template <typename T>
std::int64_t PermuteValues(std::span<const T> values, std::span<const std::int64_t> begins,
                           std::span<const std::size_t> order, std::span<T> out) {
  T* to = out.data();
  for (const std::size_t row : order) {
    to = std::copy(values.data() + begins[row], values.data() + begins[row + 1], to);
  }
  return to - out.data();
}

}  // namespace neuroshard
