// The shards of a plan with the tables of the request that they are of.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "common/domain/shard_layout.h"
#include "server/cost/shard_features.h"

namespace neuroshard {

// Points into the request and the plan.
struct ResolvedShard {
  const Table* table;
  ShardLayout layout;
  const Shard* shard;
};

// In plan order. INVALID_ARGUMENT, with all violations: unknown tables, shards outside their table,
// ranks that do not exist.
StatusOr<std::vector<ResolvedShard>> ResolveShards(const PlanRequest& request, const Plan& plan);

// The features of each rank's shards, in the order of `shards`.
std::vector<std::vector<ShardFeatures>> FeaturesByRank(const std::vector<ResolvedShard>& shards,
                                                       int num_ranks);

}  // namespace neuroshard
