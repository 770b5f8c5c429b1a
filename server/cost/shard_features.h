// Features of a shard of a table, as cost models read them.
#pragma once

#include <cstdint>
#include <optional>

#include "common/domain/measurement.h"
#include "common/domain/reuse_histogram.h"
#include "common/domain/shard_layout.h"
#include "common/domain/table.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {

// One shard as a model sees it.
struct ShardFeatures {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t table_rows = 0;  // rows / table_rows of the ids go to the shard
  bool hot_row_blocks = false;  // ids are uneven, so that more do: see AsHottestRowBlock
  ShardLayout layout;  // its load factor is what the cache on the device holds (CachedShare)
  double host_cached_share = 0;  // of its rows, where they are on SSD (HostCachedShare)
  double pooling_factor = 1.0;   // of the table
  ReuseHistogram reuse_histogram{};
  DataType weight_dtype = DataType::kFp32;
  PoolingMode pooling_mode = PoolingMode::kSum;
  bool weighted = false;
  VectorCount vectors;       // of the table's lookups (VectorsOf)
  bool unpooled = false;     // every id gives a vector, and cut rows give those of their own ids
  int num_features = 1;      // of the table, at least 1
  bool states_bags = false;  // num_poolings or feature_batch_sizes are given
  VectorCount bags = {};     // of the table, empty ones too; one a sample unless they are given
  std::optional<DataType> output_dtype = {};  // the table's
};

// The features of a `rows` x `cols` shard of `table`, laid out so (0 <= rows <= num_embeddings, 1
// <= cols <= embedding_dim). A cut in columns leaves rows, pooling and reuse as they are, since
// every id is looked up in each part (NeuroShard, section 3). A cut in rows leaves reuse as it is:
// rows are taken to be alike.
ShardFeatures FeaturesOf(const Table& table, const ShardLayout& layout, std::int64_t rows,
                         std::int64_t cols);

// A row block of a table that states hot_row_blocks, at global_batch_size, as one whose table is
// looked up so much more, and in the same rows, that its even share is what the hottest block gets
// (ExpectedHottestRowBlock). A block in proportion gets as much more than its share as the
// hottest of as many equal blocks does. Others as they are.
ShardFeatures AsHottestRowBlock(const ShardFeatures& shard, std::int64_t global_batch_size);

// A measured shard: a whole table of its own.
ShardFeatures FeaturesOf(const MeasuredShard& shard);

}  // namespace neuroshard
