// Communication of every sharding type in the unit of an all-to-all of pooled vectors, for models
// that were measured on that collective alone.
#pragma once

#include "server/cost/cost_model.h"

namespace neuroshard {

// What a batch looks up in a shard: ids, and the vectors that they give.
struct ShardLookups {
  double ids = 0;
  double vectors = 0;
};

// Of the whole batch, data_parallel: of the rank's part of it. A pooled table gives a vector for
// each bag (one a sample where the table does not state its bags), also where it holds some of the
// rows alone; an unpooled one gives a vector for each id.
ShardLookups LookupsOf(const PricingConditions& conditions, const ShardFeatures& shard);

// Type of a shard's vectors: the table's output_dtype, else fp32, which is what workers measure
// whatever the type of the rows.
DataType VectorType(const ShardFeatures& shard);

// Columns of fp32 vectors, one a sample, that have as many bytes as what a shard exchanges: its
// vectors forward and their gradients backward, in the types of QuantizedComms or else their own.
// Not of data_parallel.
struct ExchangedColumns {
  double forward = 0;
  double backward = 0;
};
ExchangedColumns ColumnsOf(const PricingConditions& conditions, const ShardFeatures& shard);

// Whether ranks add up their vectors: pooled ones of rows that are cut. Vectors of single ids go in
// an all-to-all whatever the type.
inline bool AddsVectors(const ShardFeatures& shard) {
  return CutsRows(shard.layout.type) && !shard.unpooled;
}

// A rank whose shards have d columns sends B x d values in the forward all-to-all (B samples of the
// whole batch, own part included) and receives them in the backward one. In that unit, d being
// ColumnsOf:
// - table_wise, column_wise, table_column_wise, and unpooled tables in any type: d.
// - types that cut rows of pooled tables: d on each holder, since every holder has a partial sum
//   for every sample and reduce-scatter (ring) moves as much as an all-to-all of them, which is how
//   HugeCTR does it; backward is the all-gather, of the same volume.
// - data_parallel: nothing forward; backward the ring all-reduce of the dense gradient, 2 x rows x
//   columns values, so 2 x rows x columns / B.
// A shard without rows takes part as its type's others do.
CommLoad VolumeEquivalent(const PricingConditions& conditions, const ShardFeatures& shard);

// Mean number of ids a sample of the whole batch looks up in the shard: the table's pooling factor,
// times the share of rows where rows are cut, over the ranks for data_parallel.
double ShardPoolingFactor(const PricingConditions& conditions, const ShardFeatures& shard);

}  // namespace neuroshard
