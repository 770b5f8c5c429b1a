#include "server/cost/host_traffic.h"

#include <algorithm>

#include "common/domain/expected_lookups.h"
#include "common/domain/memory_use.h"
#include "server/cost/compute_features.h"
#include "server/cost/input_dist.h"
#include "server/cost/volume_equivalent.h"

namespace neuroshard {
namespace {

HostTraffic OffloadOf(const PricingConditions& conditions, const ShardFeatures& shard) {
  const double cols = static_cast<double>(shard.cols);
  const double ids = LookupsOf(conditions, shard).ids;
  const double batch = static_cast<double>(conditions.global_batch_size);
  const double vectors = shard.unpooled ? ids : shard.vectors.Of(batch);
  const double vector_bytes = vectors * cols * ElementBytes(VectorType(shard));
  const double input_bytes = InputBytesOf(shard, conditions).total() * conditions.num_ranks;
  const double distinct =
      std::min(static_cast<double>(shard.rows), ids / MeanIdCount(shard.reuse_histogram));
  const double row = RowBytes(shard.weight_dtype, cols);
  const OptimizerState state = StateOf(conditions.optimizer);
  const double updated = 2 * distinct * (row + state.element_bytes * cols + state.row_bytes);

  const double link_ms_per_byte = kMsPerSecond / conditions.bandwidths.host_to_device_bytes_per_s;
  const double memory_ms_per_byte =
      kMsPerSecond * conditions.ranks_per_host / conditions.bandwidths.host_memory_bytes_per_s;
  return {.forward_ms = (input_bytes + vector_bytes) * link_ms_per_byte +
                        (ids * row + vector_bytes) * memory_ms_per_byte,
          .backward_ms =
              vector_bytes * link_ms_per_byte + (vector_bytes + updated) * memory_ms_per_byte};
}

}  // namespace

double RowBytes(DataType weight_dtype, double cols) {
  return cols * ElementBytes(weight_dtype) + RowBytesBesides(weight_dtype);
}

HostTraffic HostTrafficOf(const PricingConditions& conditions, const ShardFeatures& shard) {
  const ComputeKernel kernel = shard.layout.kernel;
  if (TierOf(kernel) == MemoryTier::kDevice || shard.rows == 0) return {};
  if (kernel == ComputeKernel::kOffload) return OffloadOf(conditions, shard);
  const double share = static_cast<double>(shard.rows) / static_cast<double>(shard.table_rows);
  const double load_factor = HasCache(kernel) ? shard.layout.cache_load_factor : 0;
  const auto hits_of = [&](double cached_share) {
    return ExpectedCacheHits(
        shard.reuse_histogram, shard.table_rows,
        shard.pooling_factor * static_cast<double>(conditions.global_batch_size), cached_share);
  };
  const CacheHits hits = hits_of(load_factor);
  const double slots = load_factor * static_cast<double>(shard.table_rows);
  const bool splits = kernel == ComputeKernel::kDynamicHybrid;
  const double missed = splits ? (1 - load_factor) * hits.distinct_ids : hits.missed_rows();
  const double outside = splits ? missed : std::clamp(hits.distinct_ids - slots, 0.0, missed);

  const double cols = static_cast<double>(shard.cols);
  const double row = RowBytes(shard.weight_dtype, cols);
  const double ms_per_byte =
      share * kMsPerSecond / conditions.bandwidths.host_to_device_bytes_per_s;
  HostTraffic traffic = {.forward_ms = outside * row * ms_per_byte,
                         .backward_ms = 2 * outside * row * ms_per_byte,
                         .cache_ms = 2 * (missed - outside) * row * ms_per_byte};
  if (TierOf(kernel) == MemoryTier::kSsd) {
    const double from_ssd =
        hits_of(std::min(1.0, load_factor + shard.host_cached_share)).missed_rows();
    traffic.cache_ms +=
        2 * from_ssd * row * share * kMsPerSecond / conditions.bandwidths.ssd_bytes_per_s;
    return traffic;
  }
  const double state = (IsDynamic(kernel) ? missed : hits.distinct_ids) * cols *
                       StateOf(conditions.optimizer).element_bytes;
  traffic.backward_ms = 2 * (outside * row + state) * ms_per_byte;
  return traffic;
}

}  // namespace neuroshard
