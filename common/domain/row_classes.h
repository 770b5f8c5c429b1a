// The law that the lookups of batches are drawn from, as a table's reuse histogram lets expect, and
// what the row block that holds the hottest rows looks up by it.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "common/domain/reuse_histogram.h"

namespace neuroshard {

// Rows that are looked up alike.
struct RowClass {
  double rows = 0;
  double mean_lookups = 0;  // of one row by one batch

  // Probability that a batch looks a row up: batches are independent, lookups Poisson.
  double in_batch() const { return -std::expm1(-mean_lookups); }
};

// Rows that a batch looks up, each once.
double DistinctIdsOf(const std::vector<RowClass>& classes);

// Classes of all rows, at least one, that get `ids` lookups together.
//
// Mean lookups of rows that the histogram's batch looked up twice or more: the mean of their bin
// (MeanReuseCounts). All others, looked up once or not at all, share the mass that the former leave
// by Good and Turing's estimate (what is seen n times gets the lookups of what is seen n + 1
// times), by a power law over their ranks whose exponent makes as many distinct ids as the
// histogram has. Means are scaled up where the rows are fewer than the distinct ids.
//
// rows >= 1, ids > 0; a histogram without entries stands for ids that occur once.
std::vector<RowClass> RowClassesOf(const ReuseHistogram& histogram, std::int64_t rows, double ids);

// What the row block that holds the hottest rows of a table looks up of one batch.
struct HottestRowBlock {
  double ids_share = 1;       // of the table's ids, in [1 / blocks, 1]
  ReuseHistogram reuse = {};  // of its own ids
};

// Rows are in random order, as ids that are hashed give: each is in one of `blocks` blocks with the
// same probability, whatever it is looked up. Rows are looked up as RowClassesOf says, but
// for those of the histogram's open bin, which follow Zipf's law.
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
