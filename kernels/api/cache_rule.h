// The rule of a cache of a table's rows (fused_uvm_caching), for hosts and devices: which slots
// there are and who may have them, as in FBGEMM's lru_cache_populate_cuda.
#pragma once

#include <cstdint>

#include "kernels/indices/counter_random.h"

namespace neuroshard {

// Row r belongs to set CacheSetOf(r) and is in one of its kCacheWays slots, which follow each
// other, or in none. A batch's distinct rows come at once: those that the cache holds are marked as
// used by this batch; then each missing one, in ascending order, takes a free slot of its set, else
// that of the row which was used longest ago (the first of several), but never one that this batch
// uses: where a set has no other, the row stays outside for this batch. Batches count from 1; a
// free slot was used by batch 0.
inline constexpr std::int64_t kCacheWays = 32;
inline constexpr std::int64_t kNoRow = -1;  // of a free slot

// The slots of a cache with a load factor in (0, 1]: whole sets, rounded up.
inline std::int64_t CacheSlots(std::int64_t rows, double load_factor) {
  const auto wanted = static_cast<std::int64_t>(static_cast<double>(rows) * load_factor);
  const std::int64_t sets = (wanted + kCacheWays - 1) / kCacheWays;
  return (sets > 1 ? sets : 1) * kCacheWays;
}

NS_DEVICE_CODE std::int64_t CacheSetOf(std::int64_t row, std::int64_t sets) {
  return static_cast<std::int64_t>(
      Scale(SplitMix(static_cast<std::uint64_t>(row)), static_cast<std::uint64_t>(sets)));
}

}  // namespace neuroshard
