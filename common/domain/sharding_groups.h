// 2D parallelism as in TorchRec's DMPCollection (distributed/model_parallel.py, 1.9.2): the ranks
// are cut into sharding groups. Each has all tables, sharded over its ranks by one plan, and trains
// on its share of the batch; ranks in the same place of each group hold the same and average it.
#pragma once

#include <cstdint>

#include "common/base/status.h"
#include "common/domain/plan.h"
#include "common/domain/plan_request.h"

namespace neuroshard {

// The ranks of a group, of G = world / size groups: DMPCollection's use_inter_host_allreduce.
enum class GroupRanks {
  kAlternating,  // false, its default: g, g + G, g + 2G ...
  kContiguous,   // true: g * size, g * size + 1 ...
};

// Rank `place` of group `group`.
int RankOfGroup(int world_size, int group_size, GroupRanks ranks, int group, int place);

// The topology of one group, for which its plan is made: hosts that it has no rank on are left out,
// and of a host's memory it has the share of its ranks. FAILED_PRECONDITION where group_size does
// not divide the ranks or groups differ in hosts, pods or devices: one plan is for all of them.
// group_size >= 1. O(ranks).
StatusOr<Topology> TopologyOfGroup(const Topology& topology, int group_size, GroupRanks ranks);

// What the ranks of a group's plan average with the other groups: weights and optimizer state
// (MemoryRule::kFull's) of all tables but data_parallel ones, whose gradients DDP reduces.
struct SyncBytes {
  std::int64_t total = 0;       // of the rank with the most, wherever they lie
  std::int64_t off_device = 0;  // of the rank with the most: rows in host memory and on SSD
};
// `plan`: a legal one for `request`. O(shards).
SyncBytes SyncBytesOf(const PlanRequest& request, const Plan& plan);

// Time of DMPCollection.sync(): a ring all-reduce (FabricCollectives::AllReduce) over the ranks in
// the same place of all groups, all places at once, each over links of its own; the slowest counts.
// Rows off the device cross the link to the host before and after.
// Links are the fabric's, without one those of topology.bandwidths, without latency. 0 for one
// group. O(ranks).
double SyncMs(const Topology& topology, int group_size, GroupRanks ranks, const SyncBytes& bytes);

}  // namespace neuroshard
