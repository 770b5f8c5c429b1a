// Communication of every sharding type in the unit of an all-to-all of pooled vectors, for models
// that were measured on that collective alone.
#pragma once

#include "server/cost/cost_model.h"

namespace neuroshard {

// A rank whose shards have d columns sends B x d values in the forward all-to-all (B samples of the
// whole batch, own part included) and receives them in the backward one. In that unit:
// - table_wise, column_wise, table_column_wise: the shard's columns.
// - types that cut rows: the shard's columns on each holder, since every holder has a partial sum
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
