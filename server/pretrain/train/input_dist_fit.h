// Fit of the rates of the distribution of ids to its measurements.
#pragma once

#include <span>

#include "server/cost/measured_input_dist.h"
#include "server/pretrain/data/comm_records.h"

namespace neuroshard {

// Returns the rates, none negative, with the least squares of predicted / measured - 1: the best of
// all subsets of rates whose unconstrained fit has no negative one, so exact. Takes at least one
// observation, none of 0 ms. Deterministic.
InputDistRates FitInputDist(int num_ranks, std::span<const InputDistObservation> observations);

}  // namespace neuroshard
