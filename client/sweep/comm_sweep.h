// Measures communication samples on groups over all workers.
#pragma once

#include <vector>

#include "client/sweep/sweep_run.h"

namespace neuroshard {

// For each number of ranks: opens one group whose ranks go round the workers, measures all its
// pending samples on it one after the other, and writes the records of all ranks of a sample in one
// transaction. A group that breaks is opened again on the workers that are there, and its sample
// measured again. Ends as RunComputeSweep does; FAILED_PRECONDITION when the workers have fewer
// devices than some samples have ranks (the others are measured first).
SweepReport RunCommSweep(const SweepRun& run, std::vector<CommSample> pending);

}  // namespace neuroshard
