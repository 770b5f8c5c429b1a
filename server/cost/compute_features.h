// Features of the universal compute network: raw ones of a shard, and those derived from how a
// lookup works (lookups, expected unique rows, bytes moved, the share that fits a cache). Training
// and serving share them.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "common/domain/measurement.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// Names of the features in the order of ComputeFeaturesOf.
std::span<const std::string_view> ComputeFeatureNames();

// Returns the position of a feature, or nullopt where no feature has this name.
std::optional<std::size_t> ComputeFeatureIndex(std::string_view name);

// Fills `out`, which has ComputeFeatureNames().size() entries, with finite values. Let B be the
// samples in the batch (data_parallel: in the rank's part of it), p the ids that a sample looks up
// in the shard (ShardPoolingFactor; data_parallel: the table's pooling factor), r rows, d columns,
// e bytes per weight, L = B p lookups, c the mean count of an id by the histogram, U = min(r, L /
// c) the rows expected to be looked up at all, and ln1 x = ln(1 + x):
//   bin_0 .. bin_16      the reuse histogram
//   log_dim              ln1 d
//   log_pooling_factor   ln1 p
//   log_rows             ln1 r
//   log_batch            ln1 B
//   log_lookups          ln1 L
//   log_unique_rows      ln1 U
//   log_lookup_bytes     ln1 (L d e)
//   log_unique_bytes     ln1 (U d e)
//   log_output_bytes     ln1 (4 B d); 4 L d without pooling
//   log_weight_bytes     ln1 (r d e)
//   cache_share          min(1, cache_bytes / max(1, U d e)); 1 where cache_bytes is 0, not known
//   element_bytes        e
//   weighted             0 or 1
//   mean_pooling         0 or 1
//   optimizer_<word>     1 for the conditions' optimizer, else 0
//   unpooled             1 for pooling mode "none", else 0
//   fused_uvm            1 for the kernel, else 0; so fused_uvm_caching
//   log_missed_rows      ln1 M, M the distinct rows that a batch fetches from host memory, expected
//                        (common/domain/expected_lookups): all of fused_uvm, those that the cache
//                        of fused_uvm_caching misses; 0 where rows are in device memory
//   log_missed_bytes     ln1 (M d e)
//   log_missed_pages     ln1 of the blocks of 64 KiB that these rows are in, expected: what one
//                        fault maps of a CPU's host memory (kernels/cpu/host_table.h)
// Models name the features that they were trained with, so new features go to the end.
void ComputeFeaturesOf(const PricingConditions& conditions, const ShardFeatures& shard,
                       double cache_bytes, std::span<double> out);

// Returns the mean count of an id: the sum of share x count over the bins, whose counts are 1, 2
// and then 0.75 x 2^b, the middle of (2^(b-1), 2^b]. It is 1 where the shares sum to 0.
double MeanIdCount(const ReuseHistogram& histogram);

// Conditions that a sample was measured at, as far as compute features depend on them.
PricingConditions ConditionsOf(const ComputeSample& sample);

}  // namespace neuroshard
