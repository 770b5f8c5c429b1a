// A plan in the forms that its users read.
#pragma once

#include <string>

#include "common/base/status.h"
#include "neuroshard/v1/planner.pb.h"

namespace neuroshard {

// For a person: the cost of every rank, a summary, types and shards, the bound, what moves, why,
// and the warnings; as much of it as the response has.
std::string PlanAsTable(const v1::ShardPlanResponse& response);

// TorchRec's ShardingPlan as its _serialize() writes it (torchrec 1.4, distributed/types.py):
//   {"plan": {module: {table: {sharding_type, compute_kernel, ranks,
//                              shards: [{shard_offsets: [row, col], shard_sizes: [rows, cols],
//                              placement: "rank:R/cuda:D"}]}}}}
// D is the rank's position on its host, from the request's topology. `device_type` is "cuda" or
// "cpu" ("rank:R/cpu"). Row blocks without rows stay in the list; "shards" of data_parallel is
// null, as ParameterSharding.sharding_spec is there. FAILED_PRECONDITION for row_wise_subset, which
// TorchRec does not have.
StatusOr<std::string> PlanAsTorchRec(const v1::Plan& plan, const v1::Topology& topology,
                                     const std::string& device_type);

// NeuroShard's plan, a sequence of column splits and a device for every resulting table:
//   {"format": "neuroshard-plan/1", "num_devices": D, "tables": [names in request order],
//    "column_splits": [index, ...], "assignment": [device, ...]}
// A split halves the dim of the table at `index` and appends the other half as a new table;
// assignment[i] is the device of table i after all splits. FAILED_PRECONDITION when a table's
// shards are not made by halving its columns (the format cannot say anything else).
StatusOr<std::string> PlanAsNeuroShard(const v1::Plan& plan);

}  // namespace neuroshard
