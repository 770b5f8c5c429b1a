// What a cache of a table's rows catches of the ids of a batch, expected from the table's reuse
// histogram.
#pragma once

#include <cstdint>
#include <vector>

#include "common/domain/reuse_histogram.h"

namespace neuroshard {

// Of one batch.
struct CacheHits {
  double distinct_ids = 0;  // rows that the batch looks up, each once
  double hit_rate = 0;      // share of them that the cache holds already, in [0, 1]

  double missed_rows() const { return distinct_ids * (1 - hit_rate); }
};

// A least recently used cache (FBGEMM's default; TorchRec's CacheParams) of load_factor x rows that
// batch after batch of `ids` ids goes through. Before a batch its distinct ids are looked up once
// each, and rows that are missing replace those unused for longest, never rows of the batch itself:
// where those are more than the cache holds, some of the missing rows stay outside.
//
// Batches are independent. A row is in a batch with probability p = 1 - exp(-m), m its mean number
// of lookups, and in the cache with probability 1 - exp(-m T), where T batches are such that the
// expected number of rows is the cache's size (Che, Tung and Wang, "Hierarchical web caching
// systems", 2002). A cache smaller than a batch takes a missing row with a probability q such that
// the p q / (1 - p + p q) of all rows sum up to its size.
//
// m of rows that the histogram's batch looked up twice or more: the mean of their bin. All others,
// looked up once or not at all, share the mass that the former leave by Good and Turing's estimate
// (what is seen n times gets the lookups of what is seen n + 1 times), by a power law over their
// ranks whose exponent makes as many distinct ids as the histogram has. The means of all bins are
// those of a density ~ count^-2, scaled up where the rows are fewer than the distinct ids.
//
// Against simulated caches and Zipf's law with exponents up to 1.2, hit rates are within 0.045 and
// distinct ids within 22 % (a histogram does not say how many there are).
//
// A row block is like its table: pass the table's rows and ids, and scale by its share of rows.
// rows >= 1, ids >= 0 (none: nothing to look up), load_factor in [0, 1]; a histogram without
// entries stands for ids that occur once. Some 0.1 ms for a table, less for further load factors of
// it right after. Thread-safe.
CacheHits ExpectedCacheHits(const ReuseHistogram& histogram, std::int64_t rows, double ids,
                            double load_factor);

// Rows that are looked up alike.
struct RowClass {
  double rows = 0;
  double mean_lookups = 0;  // of one row by one batch
};

// The law that ExpectedCacheHits takes batches to be drawn from: classes of all rows, at least one,
// that get `ids` lookups together. ids > 0, the rest as above.
std::vector<RowClass> RowClassesOf(const ReuseHistogram& histogram, std::int64_t rows, double ids);

}  // namespace neuroshard
