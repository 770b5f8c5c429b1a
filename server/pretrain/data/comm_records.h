// What records of communication say of more than a collective: casts of vectors, and distributions
// of ids.
#pragma once

#include <cstddef>
#include <vector>

#include "common/domain/vocabulary.h"
#include "common/store/profile_store.h"
#include "server/cost/measured_input_dist.h"

namespace neuroshard {

// Values that the rank casts in an all-to-all: those it sends and those it receives, its own part
// twice.
double CastValues(const CommSample& sample, std::size_t rank);

// The casts alone: exchanges with casts whose records say on every rank how long those took
// (kCastsProperty, above 0), which is their cost now.
std::vector<CommRecord> CastsAlone(std::vector<CommRecord> records);

// The exchanges alone: records with casts cost what they took less these, and are all-to-alls of
// elements of two bytes. Those that do not say what of them was casts, or say more than they cost
// (a median of casts beside the least of a series), are left out.
std::vector<CommRecord> WithoutCasts(std::vector<CommRecord> records);

// What a distribution of ids moved and took: of the rank that receives the most, and of the slowest.
struct InputDistObservation {
  InputDistBytes bytes;
  double ms = 0;
};

// The record's sample has an input_dist.
InputDistObservation ObservationOf(const CommRecord& record);

}  // namespace neuroshard
