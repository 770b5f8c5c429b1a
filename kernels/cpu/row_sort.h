// Sorting of occurrences by row.
#pragma once

#include <cstdint>
#include <span>

namespace neuroshard {

// Stable radix sort of `keys` by bits [low_bit, high_bit); `payload`, empty or one a key, moves
// along. Time is linear whatever the keys are. The spare spans are as long as their counterparts;
// afterwards either they or the originals hold the result.
struct SortedRows {
  std::span<std::uint64_t> keys;
  std::span<float> payload;
};
SortedRows SortByRow(SortedRows rows, SortedRows spare, int low_bit, int high_bit);

}  // namespace neuroshard
