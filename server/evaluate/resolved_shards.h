// The shards of a plan with the tables of the request that they are of, and whether they lie in
// them and on a rank: the part of legality that pricing needs too.
#pragma once

#include <cstddef>
#include <vector>

#include "common/base/status.h"
#include "common/base/violations.h"
#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "common/domain/shard_layout.h"
#include "common/domain/table.h"
#include "server/cost/shard_features.h"

namespace neuroshard {

// Position of a shard in a plan; its path is made only for a violation.
struct ShardPosition {
  std::size_t table = 0;  // in Plan::tables
  std::size_t shard = 0;  // in TablePlan::shards
};

// Adds a violation, under "plan.tables[3].shards[0]", for every range of `shard` that is empty or
// leaves `table`, and for a rank outside [0, num_ranks). A shard of a type that cuts rows may have
// none of them. Returns whether there was no violation. Any values are fine.
bool CheckShardRange(const Table& table, ShardingType type, const Shard& shard, int num_ranks,
                     ShardPosition position, Violations& violations);

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
