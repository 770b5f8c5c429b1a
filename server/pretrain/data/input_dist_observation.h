// What a distribution of ids moved and took.
#pragma once

#include "common/store/profile_store.h"
#include "server/cost/measured_input_dist.h"

namespace neuroshard {

// Of the rank that receives the most, and of the slowest.
struct InputDistObservation {
  InputDistBytes bytes;
  double ms = 0;
};

// The record's sample has an input_dist.
InputDistObservation ObservationOf(const CommRecord& record);

}  // namespace neuroshard
