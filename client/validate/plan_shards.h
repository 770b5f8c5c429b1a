// What a plan asks each rank to hold, as a worker can measure it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/domain/measurement.h"
#include "common/domain/plan.h"
#include "common/domain/plan_request.h"

namespace neuroshard {

struct RankShards {
  std::vector<MeasuredShard> shards;
  std::int64_t dim_sum = 0;  // columns that the rank exchanges for the whole batch
};

// One entry a rank of the request's topology. A column shard sees all ids of its table, a shard of
// some rows the same share of the ids; both exchange a vector of their columns for every sample.
// INVALID_ARGUMENT lists everything that keeps the plan from being run: tables missing, unknown or
// twice, ranks that do not exist, shards outside their table, tables of data_parallel (workers
// measure neither its all-reduce nor a batch of one rank). Whether shards tile their tables and fit
// in memory is the planner's to say (EvaluatePlan).
StatusOr<std::vector<RankShards>> ShardsByRank(const PlanRequest& request, const Plan& plan);

// What to bear in mind about measurements of the plan; one line each.
std::vector<std::string> NotesOn(const Plan& plan);

}  // namespace neuroshard
