// Repeats of a sample: one sample at their median or the least, and the noise between them.
#pragma once

#include <cstdint>
#include <vector>

#include "common/store/profile_store.h"

namespace neuroshard {

// Records of the same sample (equal in everything but the sample id) become one, in the place of
// the first, whose costs are the medians over them, or the least. Repeats must not be apart in
// training and held-out samples, where they would leak what is to be predicted.
std::vector<ComputeRecord> MergeRepeats(std::vector<ComputeRecord> records,
                                        SeriesCost cost = SeriesCost::kMedian);
// The same, rank by rank.
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
