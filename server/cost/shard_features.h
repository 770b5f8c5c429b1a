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

// A shard as a model sees it.
struct ShardFeatures {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t table_rows = 0;  // the shard gets rows / table_rows of the ids
  bool hot_row_blocks = false;  // ids are uneven across row blocks (AsHottestRowBlock)
  ShardLayout layout;  // its load factor is what the cache on the device holds (CachedShare)
  double host_cached_share = 0;  // of its rows, where they are on SSD (HostCachedShare)
  double pooling_factor = 1.0;   // of the table
  ReuseHistogram reuse_histogram{};
  DataType weight_dtype = DataType::kFp32;
  PoolingMode pooling_mode = PoolingMode::kSum;
  bool weighted = false;
  VectorCount vectors;       // of the table's lookups (VectorsOf)
  bool unpooled = false;     // one vector per id, and cut rows give the vectors of their own ids
  int num_features = 1;      // of the table, at least 1
  bool states_bags = false;  // num_poolings or feature_batch_sizes are given
  VectorCount bags = {};     // of the table, empty ones included; one per sample unless given
  std::optional<DataType> output_dtype = {};  // the table's
  std::uint64_t module = 0;                   // ModuleKey of the table's module
};

// Sets of shards, such as those of ranks. A shard that many sets have one like may be there once: a
// plan for 1,024 ranks has a million shards of a few thousand kinds.
struct ShardSets {
  ShardSets() = default;
  // Every shard is there by itself. Implicit, since sets of shards are just that.
  ShardSets(const std::vector<std::vector<ShardFeatures>>& given);  // NOLINT

  std::vector<ShardFeatures> shards;
  std::vector<std::vector<int>> sets;  // numbers of shards, in the order in which they are summed
};

// Returns what tells a table's module from others of the request.
std::uint64_t ModuleKey(const Table& table);

// Returns the features of a shard of `rows` x `cols` with this layout (0 <= rows <= num_embeddings,
// 1 <= cols <= embedding_dim). A cut of columns keeps rows, pooling and reuse, since every id is
// looked up in each part (NeuroShard, section 3). A cut of rows keeps reuse, as if rows were alike.
ShardFeatures FeaturesOf(const Table& table, const ShardLayout& layout, std::int64_t rows,
                         std::int64_t cols);

// Returns a row block of a table with hot_row_blocks, at global_batch_size, as the hottest one: its
// table is looked up so much more, in the same rows, that an even share is what the hottest block
// gets (ExpectedHottestRowBlock). A block in proportion gets as much more than its share as the
// hottest of equally many even blocks. Other shards are returned unchanged.
ShardFeatures AsHottestRowBlock(const ShardFeatures& shard, std::int64_t global_batch_size);

// Returns the features of a measured shard, as a whole table of its own.
ShardFeatures FeaturesOf(const MeasuredShard& shard);

}  // namespace neuroshard
