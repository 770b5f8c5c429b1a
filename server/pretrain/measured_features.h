// A measured shard as cost models see it.
#pragma once

#include "common/domain/measurement.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

inline ShardFeatures FeaturesOfMeasured(const MeasuredShard& shard) {
  return {shard.rows,         shard.cols,         shard.pooling_factor, shard.reuse_histogram,
          shard.weight_dtype, shard.pooling_mode, shard.weighted};
}

}  // namespace neuroshard
