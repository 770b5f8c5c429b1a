// Records of communication that are more than a collective: casts of vectors, and distributions of
// ids.
#pragma once

#include <cstddef>
#include <vector>

#include "common/store/profile_store.h"
#include "server/cost/measured_rates.h"

namespace neuroshard {

// Returns the number of values that the rank casts in an all-to-all: those it sends and those it
// receives, its own part twice.
double CastValues(const CommSample& sample, std::size_t rank);

// Returns the casts of those exchanges whose records say how long casts took on every rank
// (kCastsProperty, above 0), which becomes their cost.
std::vector<CommRecord> CastsAlone(std::vector<CommRecord> records);

// Returns the exchanges without their casts: the cost of the casts is subtracted, and elements have
// two bytes. Records that do not state the casts, or state more than the whole cost (a median of
// casts beside the least of a series), are left out.
std::vector<CommRecord> WithoutCasts(std::vector<CommRecord> records);

// A measured distribution of ids: the bytes of the rank that receives the most, and the time of the
// slowest.
struct InputDistObservation {
  InputDistBytes bytes;
  double ms = 0;
};

// Returns the observation of a record whose sample has an input_dist.
InputDistObservation ObservationOf(const CommRecord& record);

}  // namespace neuroshard
