// Residency: where the rows of a table are, and how many of them a cache holds.
#pragma once

#include "common/domain/shard_layout.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {

// All shards of a table have the same one. A table in device memory has the kernel that its
// sharding type has there, so that data_parallel, which is in device memory always, is dense.
struct Residency {
  ComputeKernel kernel = ComputeKernel::kFused;  // kFused: in device memory
  double cache_load_factor = 0;                  // where HasCache(kernel), in (0, 1]

  MemoryTier tier() const { return TierOf(kernel); }
  bool off_device() const { return tier() != MemoryTier::kDevice; }
  bool operator==(const Residency&) const = default;
};

// The kernel of a type in device memory.
constexpr ComputeKernel KernelOf(ShardingType type) {
  return type == ShardingType::kDataParallel ? ComputeKernel::kDense : ComputeKernel::kFused;
}

inline Residency ResidencyOf(const TablePlan& plan) {
  if (TierOf(plan.compute_kernel) == MemoryTier::kDevice) return {};
  return {plan.compute_kernel, plan.cache_load_factor};
}

// The layout of shards of a type in that residency; data_parallel is in device memory.
inline ShardLayout LayoutIn(const Residency& residency, ShardingType type, int row_shards,
                            const RowCut& cut = {}) {
  const bool in_proportion = IsInProportion(type, cut);
  if (!residency.off_device()) return {type, KernelOf(type), row_shards, 0, in_proportion};
  return {type, residency.kernel, row_shards, residency.cache_load_factor, in_proportion};
}

}  // namespace neuroshard
