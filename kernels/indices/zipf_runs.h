// Zipf's law as runs of ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/indices/lookup_rule.h"

namespace neuroshard {

// Runs and the number of all their keys, below 2^63. With a uniform key, rank k of [0, ranks)
// has probability ~ (k + 1)^-exponent: within 1e-5 for the first 256 ranks and for each run as a
// whole (exponents up to 3); further down up to a 128th of the ranks before it share one frequency,
// which is within exponent / 256 of each one's own. All are rounded to multiples of about 2^-62, so
// ranks that are rarer than half of that are left out.
struct ZipfRuns {
  std::vector<RankRun> runs;
  std::int64_t num_keys = 0;
};

// ranks in [1, 2^62], exponent >= 0 and finite.
ZipfRuns MakeZipfRuns(std::int64_t ranks, double exponent);

}  // namespace neuroshard
