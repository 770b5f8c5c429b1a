// The rates of the distribution of ids that fit its measurements best.
#pragma once

#include <span>

#include "server/cost/measured_input_dist.h"
#include "server/pretrain/data/comm_records.h"

namespace neuroshard {

// Least squares of predicted / measured - 1 with no negative rate: the best of all subsets of rates
// whose unconstrained fit has none, so exact. At least one observation, none of 0 ms.
// Deterministic.
InputDistRates FitInputDist(int num_ranks, std::span<const InputDistObservation> observations);

}  // namespace neuroshard
