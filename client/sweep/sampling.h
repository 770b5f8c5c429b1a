// The sample points of a sweep.
#pragma once

#include <vector>

#include "client/sweep/sweep_config.h"
#include "common/domain/table.h"

namespace neuroshard {

// config.num_samples samples, a pure function of its arguments; sample i ("c000123") does not
// depend on how many there are.
//
// NeuroShard, section 3: each sample draws a number of tables from [min_tables, max_tables], then
// that many different augmented tables (table x dim x row share), uniformly, whose fp32 weights fit
// max_weights_bytes together, and last its conditions. Where the paper redraws a sample that does
// not fit, here only the table is redrawn; otherwise large counts would hardly survive a small
// limit. A sample that finds no further table that fits stays smaller, but never below min_tables.
// INVALID_ARGUMENT when min_tables tables cannot fit.
StatusOr<std::vector<ComputeSample>> MakeComputeSamples(const ComputeSweepConfig& config,
                                                        const std::vector<Table>& tables);

// The candidates of an active sweep: config.active_candidates times as many samples, each once. The
// first are those of a sweep that is not active.
StatusOr<std::vector<ComputeSample>> MakeCandidates(const ComputeSweepConfig& config,
                                                    const std::vector<Table>& tables);

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
