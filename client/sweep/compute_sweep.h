// Measures compute samples on all devices of all workers.
#pragma once

#include <vector>

#include "client/sweep/sweep_run.h"

namespace neuroshard {

// Hands `pending` out to free devices, one stream a device, and writes every record to the store in
// a transaction of its own as it arrives. Samples of a worker that dies go back to the others; a
// worker that is restarted on its address is used again. Blocks until every sample has a record or
// is given up, the run is stopped (measurements in flight are cancelled, they cost seconds), or no
// worker is left.
SweepReport RunComputeSweep(const SweepRun& run, std::vector<ComputeSample> pending);

}  // namespace neuroshard
