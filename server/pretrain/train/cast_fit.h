// The rates of casts that fit their measurements best.
#pragma once

#include <span>

#include "server/cost/measured_casts.h"

namespace neuroshard {

// All casts of one rank in one exchange.
struct CastObservation {
  double values = 0;
  double ms = 0;
};

// Least squares of predicted / measured - 1 over both rates and, among quantiles of the observed
// values, over how many are cached; one rate where a second that is no lower does not fit better.
// At least one observation, none of 0 values or 0 ms. O(n log n). Deterministic.
CastRates FitCasts(std::span<const CastObservation> observations);

}  // namespace neuroshard
