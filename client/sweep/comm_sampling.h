// The sample points of a communication sweep.
#pragma once

#include <vector>

#include "client/sweep/sweep_config.h"

namespace neuroshard {

// The samples of a sweep: for every entry of config.num_ranks, config.num_samples placements. The
// samples of a placement are next to each other: the all-to-alls backward ("m000123b") and forward
// ("m000123f"), then reduce_scatter ("m000123r"), all_gather ("m000123g") and all_reduce
// ("m000123a") of as many columns spread evenly; those that config.collectives lists. With
// config.input_dist, one distribution of ids ("m000123i") a placement instead. A pure function of
// the config.
//
// NeuroShard, section 3: random tables by dim, widest first, each to the least loaded rank or, with
// a probability drawn once per placement, to a random rank. Forward samples and half of the other
// collectives have start offsets; their minimum is 0. All-to-alls have a drawn wire_dtype.
std::vector<CommSample> MakeCommSamples(const CommSweepConfig& config);

}  // namespace neuroshard
