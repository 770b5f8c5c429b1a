// The sample points of a communication sweep.
#pragma once

#include <vector>

#include "client/sweep/sweep_config.h"

namespace neuroshard {

// For every entry of config.num_ranks, config.num_samples placements; each placement is two
// samples, backward ("m000123b") and forward ("m000123f"), next to each other. A pure function of
// the config.
//
// NeuroShard, section 3: random tables by dim, widest first, each to the least loaded rank or, with
// a probability drawn once per placement, to a random rank. Forward samples carry start offsets
// whose minimum is 0.
std::vector<CommSample> MakeCommSamples(const CommSweepConfig& config);

}  // namespace neuroshard
