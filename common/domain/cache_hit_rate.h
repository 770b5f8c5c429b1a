// What a cache of a table's rows catches of the ids of a batch, expected from the table's reuse
// histogram.
#pragma once

#include <cstdint>

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
// A row is in a batch with probability p = 1 - exp(-m), m its mean number of lookups by the law of
// row_classes.h, and in the cache with probability 1 - exp(-m T), where T batches are such that the
// expected number of rows is the cache's size (Che, Tung and Wang, "Hierarchical web caching
// systems", 2002). A cache smaller than a batch takes a missing row with a probability q such that
// the p q / (1 - p + p q) of all rows sum up to its size.
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

}  // namespace neuroshard
