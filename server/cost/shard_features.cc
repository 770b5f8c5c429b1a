#include "server/cost/shard_features.h"

#include <algorithm>

#include "common/base/hash.h"
#include "common/domain/expected_lookups.h"
#include "common/domain/memory_use.h"

namespace neuroshard {

ShardSets::ShardSets(const std::vector<std::vector<ShardFeatures>>& given) {
  for (const std::vector<ShardFeatures>& set : given) {
    std::vector<int>& numbers = sets.emplace_back();
    for (const ShardFeatures& shard : set) {
      numbers.push_back(static_cast<int>(shards.size()));
      shards.push_back(shard);
    }
  }
}

std::uint64_t ModuleKey(const Table& table) { return Fnv1a(table.module); }

ShardFeatures FeaturesOf(const Table& table, const ShardLayout& layout, std::int64_t rows,
                         std::int64_t cols) {
  ShardFeatures features;
  features.rows = rows;
  features.cols = cols;
  features.table_rows = table.num_embeddings;
  features.hot_row_blocks = table.hot_row_blocks && CutsRows(layout.type);
  features.layout = layout;
  features.layout.cache_load_factor = CachedShare(table, layout, rows, cols);
  features.host_cached_share = HostCachedShare(table, layout, rows, cols);
  features.pooling_factor = table.pooling_factor;
  features.reuse_histogram = table.reuse_histogram;
  features.weight_dtype = table.weight_dtype;
  features.pooling_mode = table.pooling_mode;
  features.weighted = table.weighted;
  features.vectors = VectorsOf(table);
  features.unpooled = table.kind == TableKind::kEmbedding;
  features.num_features = std::max(1, static_cast<int>(table.features.size()));
  features.states_bags = !table.num_poolings.empty() || !table.feature_batch_sizes.empty();
  features.bags = CountBags(table);
  features.output_dtype = table.output_dtype;
  features.module = ModuleKey(table);
  return features;
}

ShardFeatures AsHottestRowBlock(const ShardFeatures& shard, std::int64_t global_batch_size) {
  ShardFeatures block = shard;
  block.hot_row_blocks = false;
  const double ids = shard.pooling_factor * static_cast<double>(global_batch_size);
  const int blocks = shard.layout.row_shards;
  if (!shard.hot_row_blocks || ids <= 0 || blocks <= 1) return block;
  const HottestRowBlock hottest =
      ExpectedHottestRowBlock(shard.reuse_histogram, shard.table_rows, ids, blocks);
  const double surplus = hottest.ids_share * blocks;
  block.pooling_factor *= surplus;
  block.reuse_histogram = hottest.reuse;
  if (shard.unpooled) {
    block.vectors.of_sample *= surplus;
    block.vectors.of_batch *= surplus;
  }
  return block;
}

ShardFeatures FeaturesOf(const MeasuredShard& shard) {
  ShardFeatures features;
  features.rows = shard.rows;
  features.cols = shard.cols;
  features.table_rows = shard.rows;
  features.layout.kernel = shard.compute_kernel;
  features.layout.cache_load_factor = shard.cache_load_factor;
  features.pooling_factor = shard.pooling_factor;
  features.unpooled = shard.pooling_mode == PoolingMode::kNone;
  features.vectors = {
      features.unpooled ? shard.pooling_factor : std::min(1.0, shard.pooling_factor), 0};
  features.reuse_histogram = shard.reuse_histogram;
  features.weight_dtype = shard.weight_dtype;
  features.pooling_mode = shard.pooling_mode;
  features.weighted = shard.weighted;
  return features;
}

}  // namespace neuroshard
