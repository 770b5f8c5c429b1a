// What the row block that holds the hottest rows of a table looks up, expected from the table's
// reuse histogram.
#pragma once

#include <cstdint>

#include "common/domain/reuse_histogram.h"

namespace neuroshard {

// Of one batch.
struct HottestRowBlock {
  double ids_share = 1;       // of the table's ids, in [1 / blocks, 1]
  ReuseHistogram reuse = {};  // of its own ids
};

// Rows are in random order, as ids that are hashed give: each is in one of `blocks` blocks with the
// same probability, whatever it is looked up. Rows are looked up as RowClassesWithHottest says.
//
// The share is by that law an upper bound of the expected largest one, by Chernoff's method: with
// shares x of all rows, E max <= min over t > 0 of
//   (ln blocks + sum ln(1 + (exp(t x) - 1) / blocks)) / t.
// Against hashed rows of Zipf's law (exponents 0 to 1.3, 2 to 512 blocks) it is 0.96 to 1.09 of
// the mean of simulated maxima. What the block looks up beyond an even share are ids of the
// histogram's highest bin: its other rows are looked up as those of any block.
//
// rows >= 1, ids > 0, blocks >= 1. Some 0.2 ms, and nothing when asked again by the thread.
// Thread-safe.
HottestRowBlock ExpectedHottestRowBlock(const ReuseHistogram& histogram, std::int64_t rows,
                                        double ids, int blocks);

}  // namespace neuroshard
