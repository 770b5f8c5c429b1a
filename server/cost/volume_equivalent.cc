#include "server/cost/volume_equivalent.h"

namespace neuroshard {

CommLoad VolumeEquivalent(const PricingConditions& conditions, const ShardFeatures& shard) {
  const float cols = static_cast<float>(shard.cols);
  if (CutsRows(shard.layout.type)) return {cols, cols, {.cut_rows = true}};
  if (shard.layout.type != ShardingType::kDataParallel) return {cols, cols, {.whole_rows = true}};
  const double values = 2.0 * static_cast<double>(shard.rows) * static_cast<double>(shard.cols);
  return {0,
          static_cast<float>(values / static_cast<double>(conditions.global_batch_size)),
          {.replicas = true}};
}

double ShardPoolingFactor(const PricingConditions& conditions, const ShardFeatures& shard) {
  if (shard.layout.type == ShardingType::kDataParallel) {
    return shard.pooling_factor / conditions.num_ranks;
  }
  if (!CutsRows(shard.layout.type)) return shard.pooling_factor;
  return shard.pooling_factor * static_cast<double>(shard.rows) /
         static_cast<double>(shard.table_rows);
}

}  // namespace neuroshard
