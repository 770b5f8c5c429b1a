// Features of a shard of a table, as cost models read them.
#pragma once

#include <cstdint>

#include "common/domain/measurement.h"
#include "common/domain/reuse_histogram.h"
#include "common/domain/shard_layout.h"
#include "common/domain/table.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {

// Ids that the features of a table look up, and the bags that they come in: of one sample or,
// where features have batch sizes of their own, of the whole batch.
struct LookupInputs {
  double ids = 1;
  double bags = 1;
  bool of_batch = false;

  double IdsOf(double global_batch_size) const { return of_batch ? ids : ids * global_batch_size; }
  double BagsOf(double global_batch_size) const {
    return of_batch ? bags : bags * global_batch_size;
  }
  bool operator==(const LookupInputs&) const = default;
};

// A feature has its pooling factor in ids a bag and its number of bags a sample, as TorchRec counts
// (batch_inputs of planner/estimator/types.py). Features without pooling factors of their own share
// the table's evenly.
LookupInputs InputsOf(const Table& table);

// One shard as a model sees it.
struct ShardFeatures {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t table_rows = 0;  // rows / table_rows of the ids go to the shard
  ShardLayout layout;
  double pooling_factor = 1.0;  // of the table
  ReuseHistogram reuse_histogram{};
  DataType weight_dtype = DataType::kFp32;
  PoolingMode pooling_mode = PoolingMode::kSum;
  bool weighted = false;
  VectorCount vectors;       // of the table's lookups (VectorsOf)
  bool unpooled = false;     // every id gives a vector, and cut rows give those of their own ids
  LookupInputs inputs = {};  // of the table
};

// The features of a `rows` x `cols` shard of `table`, laid out so (0 <= rows <= num_embeddings, 1
// <= cols <= embedding_dim). A cut in columns leaves rows, pooling and reuse as they are, since
// every id is looked up in each part (NeuroShard, section 3). A cut in rows leaves reuse as it is:
// rows are taken to be alike.
ShardFeatures FeaturesOf(const Table& table, const ShardLayout& layout, std::int64_t rows,
                         std::int64_t cols);

// A measured shard: a whole table of its own.
ShardFeatures FeaturesOf(const MeasuredShard& shard);

}  // namespace neuroshard
