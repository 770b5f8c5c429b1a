#include "server/cost/shard_features.h"

#include <algorithm>
#include <cstddef>

namespace neuroshard {

LookupInputs InputsOf(const Table& table) {
  const std::size_t num_features = std::max<std::size_t>(1, table.features.size());
  LookupInputs inputs = {0, 0, !table.feature_batch_sizes.empty()};
  for (std::size_t f = 0; f < num_features; ++f) {
    double bags = table.num_poolings.empty() ? 1 : table.num_poolings[f];
    if (inputs.of_batch) bags *= static_cast<double>(table.feature_batch_sizes[f]);
    inputs.bags += bags;
    inputs.ids += bags * (table.pooling_factors.empty()
                              ? table.pooling_factor / static_cast<double>(num_features)
                              : table.pooling_factors[f]);
  }
  return inputs;
}

ShardFeatures FeaturesOf(const Table& table, const ShardLayout& layout, std::int64_t rows,
                         std::int64_t cols) {
  ShardFeatures features;
  features.rows = rows;
  features.cols = cols;
  features.table_rows = table.num_embeddings;
  features.layout = layout;
  features.pooling_factor = table.pooling_factor;
  features.reuse_histogram = table.reuse_histogram;
  features.weight_dtype = table.weight_dtype;
  features.pooling_mode = table.pooling_mode;
  features.weighted = table.weighted;
  features.vectors = VectorsOf(table);
  features.unpooled = table.kind == TableKind::kEmbedding;
  features.inputs = InputsOf(table);
  return features;
}

ShardFeatures FeaturesOf(const MeasuredShard& shard) {
  ShardFeatures features;
  features.rows = shard.rows;
  features.cols = shard.cols;
  features.table_rows = shard.rows;
  features.pooling_factor = shard.pooling_factor;
  features.vectors = {std::min(1.0, shard.pooling_factor), 0};
  features.inputs.ids = shard.pooling_factor;
  features.reuse_histogram = shard.reuse_histogram;
  features.weight_dtype = shard.weight_dtype;
  features.pooling_mode = shard.pooling_mode;
  features.weighted = shard.weighted;
  return features;
}

}  // namespace neuroshard
