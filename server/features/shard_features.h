// Features of a shard of a table, as cost models read them.
#pragma once

#include <cstdint>

#include "common/domain/measurement.h"
#include "common/domain/table.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// The features of a `rows` x `cols` shard of `table`, laid out so (0 <= rows <= num_embeddings, 1
// <= cols <= embedding_dim). A cut in columns leaves rows, pooling and reuse as they are, since
// every id is looked up in each part (NeuroShard, section 3). A cut in rows leaves reuse as it is:
// rows are taken to be alike.
ShardFeatures FeaturesOf(const Table& table, const ShardLayout& layout, std::int64_t rows,
                         std::int64_t cols);

// A measured shard: a whole table of its own.
ShardFeatures FeaturesOf(const MeasuredShard& shard);

}  // namespace neuroshard
