#include "server/cost/volume_equivalent.h"

namespace neuroshard {

ShardLookups LookupsOf(const PricingConditions& conditions, const ShardFeatures& shard) {
  const double batch = static_cast<double>(conditions.global_batch_size);
  ShardLookups lookups = {batch * ShardPoolingFactor(conditions, shard), shard.bags.Of(batch)};
  if (shard.layout.type == ShardingType::kDataParallel) lookups.vectors /= conditions.num_ranks;
  if (shard.unpooled) lookups.vectors = lookups.ids;
  return lookups;
}

DataType VectorType(const ShardFeatures& shard) {
  return shard.output_dtype.value_or(DataType::kFp32);
}

ExchangedColumns ColumnsOf(const PricingConditions& conditions, const ShardFeatures& shard) {
  constexpr double kFp32Bytes = 4;
  const DataType own = VectorType(shard);
  const double columns = static_cast<double>(shard.cols) * LookupsOf(conditions, shard).vectors /
                         static_cast<double>(conditions.global_batch_size);
  const auto share = [&](const std::optional<DataType>& wire) {
    return ElementBytes(wire.value_or(own)) / kFp32Bytes;
  };
  return {columns * share(conditions.quantized_comms.forward_dtype),
          columns * share(conditions.quantized_comms.backward_dtype)};
}

CommLoad VolumeEquivalent(const PricingConditions& conditions, const ShardFeatures& shard) {
  if (shard.layout.type != ShardingType::kDataParallel) {
    const ExchangedColumns columns = ColumnsOf(conditions, shard);
    CommLoad load = {static_cast<float>(columns.forward), static_cast<float>(columns.backward)};
    (AddsVectors(shard) ? load.kinds.cut_rows : load.kinds.whole_rows) = true;
    return load;
  }
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
