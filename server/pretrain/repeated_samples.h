// A sample that was measured several times is one sample whose cost is known better.
#pragma once

#include <vector>

#include "common/store/profile_store.h"

namespace neuroshard {

// Records of the same sample (equal in everything but the sample id) become one, in the place of
// the first, whose costs are the medians over them. Repeats must not be apart in training and
// held-out samples, where they would leak what is to be predicted.
std::vector<ComputeRecord> MergeRepeats(std::vector<ComputeRecord> records);
// The same, rank by rank.
std::vector<CommRecord> MergeRepeats(std::vector<CommRecord> records);

}  // namespace neuroshard
