// What a plan asks each rank to hold, as a worker can measure it.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "common/domain/measurement.h"
#include "common/domain/plan.h"
#include "common/domain/plan_request.h"

namespace neuroshard {

struct RankShards {
  std::vector<MeasuredShard> shards;
  std::int64_t dim_sum = 0;
};

// One entry a rank of the request's topology. A column shard sees all ids of its table.
// INVALID_ARGUMENT lists everything that keeps the plan from being run: tables missing, unknown or
// twice, ranks that do not exist, shards outside their table or of part of the rows. Whether shards
// tile their tables and fit in memory is the planner's to say (EvaluatePlan).
StatusOr<std::vector<RankShards>> ShardsByRank(const PlanRequest& request, const Plan& plan);

}  // namespace neuroshard
