// Reuse histogram: how often the distinct ids of one global batch occur (NeuroShard, section 3 and
// the released input generation).
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace neuroshard {

// Entry 0: share of distinct ids that occur once; entry k: 2^(k-1) < count <= 2^k; entry 16: count
// > 2^15. Sums to 1.
inline constexpr int kReuseBins = 17;
using ReuseHistogram = std::array<double, kReuseBins>;

// The bin that an id occurring `count` (>= 1) times falls into.
int ReuseBin(std::int64_t count);

// The histogram of the given ids, which are the ids of one batch in any order. All zero when there
// are none.
ReuseHistogram MeasureReuseHistogram(std::span<const std::int64_t> ids);

// Mean count of the ids of each bin, by a density ~ count^-2.
const ReuseHistogram& MeanReuseCounts();

// What p(k) ~ k^-exponent over `rows` rows gives in expectation when `num_ids` ids are drawn.
// exponent 0 is uniform.
ReuseHistogram ZipfReuseHistogram(std::int64_t rows, std::int64_t num_ids, double exponent);

// Assumed when a request states neither: the mean over the 856 public tables of the DLRM 2021 trace
// (configs/workloads).
ReuseHistogram DefaultReuseHistogram();

}  // namespace neuroshard
