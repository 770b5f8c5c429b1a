// Repeated measurements of a sample: their median or least, and the noise between them.
#pragma once

#include <cstdint>
#include <vector>

#include "common/store/profile_store.h"

namespace neuroshard {

// Merges records of equal samples, apart from the sample id, into one, in the place of the first,
// whose costs are the medians over them, or the least. Otherwise repeats in training would leak the
// costs of held-out samples.
std::vector<ComputeRecord> MergeRepeats(std::vector<ComputeRecord> records,
                                        SeriesCost cost = SeriesCost::kMedian);
// Merges records rank by rank.
std::vector<CommRecord> MergeRepeats(std::vector<CommRecord> records,
                                     SeriesCost cost = SeriesCost::kMedian);

// Noise between measurements of the same sample.
struct RepeatNoise {
  std::int64_t samples = 0;  // measured more than once
  // Mean |a - b| / mean(a, b) of neighbouring repeats, over the square root of 2: the mean relative
  // error that a model which knew every true cost would be charged with.
  double mape_percent = 0;
};
RepeatNoise NoiseOfRepeats(const std::vector<ComputeRecord>& records);

}  // namespace neuroshard
