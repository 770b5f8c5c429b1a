// Communication surrogate: a linear model of the communication cost that estimates most moves, so
// that only the best of them need the cost model.
#pragma once

#include "server/cost/cost_model.h"

namespace neuroshard {

// Change of a rank's communication cost between two placements that differ little:
//   backward = backward_own x change of own load + backward_largest x change of the largest load
//   forward  = the same, + forward_wait x change of (largest start offset - own start offset)
// Own loads are of the rank, largest ones over all ranks, both in the unit of CommLoad; ms a unit.
struct CommSurrogate {
  double backward_own = 0;
  double backward_largest = 0;
  double forward_own = 0;
  double forward_largest = 0;
  double forward_wait = 0;  // in [0, 1]: a rank waits at most as long as it is ahead
};

// Fits the surrogate around all ranks holding these loads and being ready at once, from what half
// as much again costs on one rank and on all, and what one late rank costs the others. Prices 4
// placements.
CommSurrogate ProbeComm(const BoundCostModel& model, double forward_load, double backward_load);

}  // namespace neuroshard
