#include "server/cost/host_traffic.h"

#include <algorithm>

#include "common/domain/cache_hit_rate.h"
#include "common/domain/memory_use.h"
#include "server/cost/volume_equivalent.h"

namespace neuroshard {

double RowBytes(DataType weight_dtype, double cols) {
  return cols * static_cast<double>(ElementBytes(weight_dtype)) + RowBytesBesides(weight_dtype);
}

HostTraffic HostTrafficOf(const PricingConditions& conditions, const ShardFeatures& shard) {
  if (!IsInHostMemory(shard.layout.kernel) || shard.rows == 0) return {};
  const double share = static_cast<double>(shard.rows) / static_cast<double>(shard.table_rows);
  const double load_factor =
      shard.layout.kernel == ComputeKernel::kFusedUvmCaching ? shard.layout.cache_load_factor : 0;
  const CacheHits hits = ExpectedCacheHits(
      shard.reuse_histogram, shard.table_rows,
      shard.pooling_factor * static_cast<double>(conditions.global_batch_size), load_factor);
  const double slots = load_factor * static_cast<double>(shard.table_rows);
  const double missed = hits.missed_rows();
  const double outside = std::clamp(hits.distinct_ids - slots, 0.0, missed);

  const double cols = static_cast<double>(shard.cols);
  const double row = RowBytes(shard.weight_dtype, cols);
  const double state =
      hits.distinct_ids * cols * StateOf(conditions.optimizer, shard.weight_dtype).element_bytes;
  const double ms_per_byte =
      share * kMsPerSecond / conditions.bandwidths.host_to_device_bytes_per_s;
  return {.forward_ms = outside * row * ms_per_byte,
          .backward_ms = 2 * (outside * row + state) * ms_per_byte,
          .cache_ms = 2 * (missed - outside) * row * ms_per_byte};
}

}  // namespace neuroshard
