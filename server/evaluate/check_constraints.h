// Check of a plan against the request's constraints, the trainer's kernels and the migration budget.
#pragma once

#include <cstddef>
#include <vector>

#include "common/base/violations.h"
#include "common/domain/plan.h"
#include "common/domain/plan_request.h"

namespace neuroshard {

// A shard of a plan that is in range (CheckShardRange), of a table that the request has.
struct PlacedShard {
  std::size_t table = 0;  // in PlanRequest::tables
  std::size_t entry = 0;  // in Plan::tables
  std::size_t index = 0;  // in TablePlan::shards
};

// Adds a violation for every breach of the constraints, of what the trainer's kernels take
// (PlanRequest::kernels) and of the migration budget; each says which one it is
// ("constraints.tables[2].ranks"). `shards` ascend by (entry, index); those of a
// table that the plan holds twice count twice. The default sharding types of a cost model do not
// matter here: they bind searches, not plans. O(what the constraints list + shards x rules that
// name their table).
void CheckConstraints(const PlanRequest& request, const Plan& plan,
                      const std::vector<PlacedShard>& shards, Violations& violations);

}  // namespace neuroshard
