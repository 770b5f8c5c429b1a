// A shard of a table as cost models see it.
#pragma once

#include <cstdint>

#include "common/domain/table.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// The features of a `rows` x `cols` shard of `table` (1 <= rows <= num_embeddings, 1 <= cols <=
// embedding_dim). A cut in columns leaves rows, pooling and reuse as they are, since every id is
// looked up in each part (NeuroShard, section 3). A cut in rows would scale pooling; no strategy
// makes one yet, so rows other than the table's are passed on with the table's pooling.
ShardFeatures FeaturesOf(const Table& table, std::int64_t rows, std::int64_t cols);

}  // namespace neuroshard
