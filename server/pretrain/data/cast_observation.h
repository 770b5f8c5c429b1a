// Casts of vectors as the records of exchanges have them.
#pragma once

#include <cstddef>
#include <vector>

#include "common/domain/vocabulary.h"
#include "common/store/profile_store.h"

namespace neuroshard {

// One rank of one exchange.
struct CastObservation {
  DataType wire_dtype = DataType::kFp16;
  double values = 0;  // that were cast: those sent and those received
  double ms = 0;
};

// Values that the rank sends and receives in an all-to-all, its own part twice.
double CastValues(const CommSample& sample, std::size_t rank);

// Of the ranks that cast something and say how long it took (kCastsProperty).
std::vector<CastObservation> CastsOf(const std::vector<CommRecord>& records);

// The exchanges alone: records with casts cost what they took less these, and are all-to-alls of
// elements of two bytes. Those that do not say what of them was casts, or say more than they cost
// (a median of casts beside the least of a series), are left out.
std::vector<CommRecord> WithoutCasts(std::vector<CommRecord> records);

}  // namespace neuroshard
