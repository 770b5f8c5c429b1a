// Check of a plan, whoever made it, against all rules.
#pragma once

#include <vector>

#include "common/base/violations.h"
#include "common/domain/plan.h"
#include "common/domain/plan_request.h"

namespace neuroshard {

// Every rule that `plan` breaks, with paths such as "plan.tables[3].shards[0].rank"; empty: the
// plan is legal.
// - world_size and local_world_size are those of the request's topology (local_world_size 0 when
//   hosts differ in size).
// - Every table of the request appears exactly once, in any order, under its name and module; no
//   other table does.
// - Shards lie inside their table, tile it exactly and stand in ascending order of (col_offset,
//   row_offset); they are cut and placed as common/domain/shard_layout.h says of the table's
//   sharding type. The compute kernel is dense with data_parallel and fused with all others, or, where
//   the topology states memory of hosts, one with rows in host memory; a cache has a load factor in
//   (0, 1].
// - Ranks exist. What a rank holds (ShardMemory of its shards, plus ReserveBytes) is within that
//   rank's own capacity; a rank without shards is within any. What the ranks of a host hold in its
//   memory is within what it has, and each rank's part within the rank's own limit.
// - The request's constraints and its migration budget are kept; such a violation names the
//   constraint ("constraints.tables[2].ranks"). Where they name no sharding types, any will do: the
//   default types of a cost model bind searches, not plans.
// `plan` may hold any values whatsoever; nothing overflows. At most Violations::kMaxKept are
// listed; one more entry at "plan" then counts the rest. O(shards log shards) and
// what CheckConstraints takes.
std::vector<Violation> CheckPlan(const PlanRequest& request, const Plan& plan);

}  // namespace neuroshard
