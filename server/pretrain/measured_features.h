// A measured shard as cost models see it.
#pragma once

#include "common/domain/measurement.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

inline ShardFeatures FeaturesOfMeasured(const MeasuredShard& shard) {
  ShardFeatures features;
  features.rows = shard.rows;
  features.cols = shard.cols;
  features.table_rows = shard.rows;
  features.pooling_factor = shard.pooling_factor;
  features.reuse_histogram = shard.reuse_histogram;
  features.weight_dtype = shard.weight_dtype;
  features.pooling_mode = shard.pooling_mode;
  features.weighted = shard.weighted;
  return features;
}

}  // namespace neuroshard
