// The collectives of one training iteration under a plan, as workers can measure them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/validate/plan_shards.h"
#include "common/base/status.h"
#include "common/domain/measurement.h"

namespace neuroshard {

// What the ranks exchange in `direction`, one sample a collective, without those that would move
// nothing:
//   forward   all_to_all of pooled vectors; reduce_scatter of the partial sums of cut rows
//   backward  all_to_all of gradients; all_gather of the gradients of cut rows; all_reduce of the
//             replicas' gradients
// A trainer runs them one after another, so that a stage takes the sum of their times. All ranks of
// a reduce_scatter, all_gather or all_reduce bring as much as the one that has the most: TorchRec
// keeps a buffer for every cut table on every rank that takes part, with rows or without.
// `batch_size` is a multiple of the number of ranks, and so is that of each sample. An all_reduce
// has the replicas' values in its batch_size x columns, rounded up by less than a value a rank and
// column. All-to-alls are in the type that `quantized_comms` has for the direction, if it is an
// IsWireCast; the others are in fp32.
std::vector<CommSample> CollectivesOf(const std::vector<RankShards>& ranks, CommDirection direction,
                                      std::int64_t batch_size,
                                      const QuantizedComms& quantized_comms = {});

// Distributions of ids before the lookups, one of tables without weights and one of weighted ones,
// which TorchRec has in modules of their own; without those that have no features. Rows that are cut
// are cut evenly over all ranks there, whatever the plan has. FAILED_PRECONDITION: more features or
// ids than workers distribute.
StatusOr<std::vector<CommSample>> InputDistributionsOf(const std::vector<RankShards>& ranks,
                                                       std::int64_t batch_size);

// Notes on what measurements of these ranks leave out, one line each: of lookups and exchanges, and
// of distributions of ids.
std::vector<std::string> NotesOn(const std::vector<RankShards>& ranks);
std::vector<std::string> InputDistNotesOn(const std::vector<RankShards>& ranks);

}  // namespace neuroshard
