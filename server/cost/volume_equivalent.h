// Communication of every sharding type in the unit of an all-to-all of pooled vectors, for models
// that were measured on that collective alone.
#pragma once

#include "server/cost/cost_model.h"

namespace neuroshard {

// Ids that a batch looks up in a shard, and the vectors that they give.
struct ShardLookups {
  double ids = 0;
  double vectors = 0;
};

// Returns the lookups of the whole batch (data_parallel: of the rank's part of it). A pooled table
// gives a vector per bag, one per sample unless it states its bags, even where only some of the
// rows are here; an unpooled table gives a vector per id.
ShardLookups LookupsOf(const PricingConditions& conditions, const ShardFeatures& shard);

// Returns the type of a shard's vectors: the table's output_dtype, else fp32, which workers measure
// whatever the type of the rows.
DataType VectorType(const ShardFeatures& shard);

// Columns of fp32 vectors, one per sample, with as many bytes as a shard exchanges: its vectors
// forward and their gradients backward, in the types of QuantizedComms or else their own. Not for
// data_parallel.
struct ExchangedColumns {
  double forward = 0;
  double backward = 0;
};
ExchangedColumns ColumnsOf(const PricingConditions& conditions, const ShardFeatures& shard);

// Returns whether ranks add up their vectors: pooled vectors of cut rows. Unpooled vectors go
// through an all-to-all in every type.
inline bool AddsVectors(const ShardFeatures& shard) {
  return CutsRows(shard.layout.type) && !shard.unpooled;
}

// Returns the load in the unit of NeuroShard's networks: a rank whose shards have d columns sends B
// x d values in the forward all-to-all (B samples of the whole batch, own part included) and
// receives them in the backward one. With d = ColumnsOf:
// - table_wise, column_wise, table_column_wise, and unpooled tables in any type: d.
// - types that cut rows of pooled tables: d on each holder, since every holder has a partial sum
//   for every sample, and a ring reduce-scatter moves as much as an all-to-all of them (which is
//   what HugeCTR does); the backward all-gather has the same volume.
// - data_parallel: nothing forward; backward the ring all-reduce of the dense gradient, 2 x rows x
//   columns values, so 2 x rows x columns / B.
// A shard without rows takes part like the other shards of its type.
CommLoad VolumeEquivalent(const PricingConditions& conditions, const ShardFeatures& shard);

// Returns the mean number of ids that a sample of the whole batch looks up in the shard: the
// pooling factor of the table, times the share of rows where rows are cut, over the ranks for
// data_parallel.
double ShardPoolingFactor(const PricingConditions& conditions, const ShardFeatures& shard);

}  // namespace neuroshard
