// Lookup ids for one table and one batch, made to look like production ids in what costs time: how
// many ids a sample has and how often ids repeat (NeuroShard, section 3: pooling factor and reuse
// histogram).
#pragma once

#include <cstdint>

#include "common/base/status.h"
#include "common/domain/reuse_histogram.h"
#include "kernels/indices/lookup_plan.h"

namespace neuroshard {

// The shape of a batch of ids.
struct LookupSpec {
  std::int64_t rows = 0;
  std::int64_t batch_size = 0;
  double pooling_factor = 0;  // mean ids per sample
  bool weighted = false;      // one random weight in [0.5, 1.5) an id
  std::uint64_t seed = 0;
};

// How many ids such a batch has: round(batch_size * pooling_factor). A batch takes 8 bytes an id
// (12 weighted) and 8 a sample.
std::int64_t NumLookups(std::int64_t batch_size, double pooling_factor);

// Ids whose reuse histogram is `histogram` (weights of the bins; need not sum to 1) up to
// rounding of the number of distinct ids per bin. The batch has exactly NumLookups ids; every
// sample has floor(pooling_factor) or one more, the longer ones at random places that are spread
// evenly; which rows are hit and the order of the ids are random. A function of the arguments, the
// same on every platform and device. Where the histogram cannot be met, it is approached: more
// lookups per row than the histogram allows raise all counts, fewer lookups than one id of a bin
// needs give that bin's share to the highest bin within reach. Takes as long for many ids as for
// few. INVALID_ARGUMENT when a value is out of range, or ids are asked for and the histogram is all
// zero.
StatusOr<LookupPlan> PlanLookups(const LookupSpec& spec, const ReuseHistogram& histogram);

// Independent ids by the law that ExpectedCacheHits has for batches of this histogram
// (common/domain/expected_lookups): most like those of PlanLookups, but a row that is hot is hot in
// every batch of the table. `batch` says which; those of one spec differ in nothing else.
StatusOr<LookupPlan> PlanIndependentLookups(const LookupSpec& spec, const ReuseHistogram& histogram,
                                            std::int64_t batch);

}  // namespace neuroshard
