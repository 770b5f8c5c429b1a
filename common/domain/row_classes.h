// The law that the lookups of batches are drawn from, as a table's reuse histogram lets expect.
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

// The same with the rows of the histogram's open bin apart, which says of R rows only that each
// occurs more than c = 2^15 times: they follow Zipf's law, the k-th of them c (R / k)^exponent
// times, with the exponent of the three bins before (in [0.5, 2]; 1 without any). For what rests on
// the hottest rows.
std::vector<RowClass> RowClassesWithHottest(const ReuseHistogram& histogram, std::int64_t rows,
                                            double ids);

}  // namespace neuroshard
