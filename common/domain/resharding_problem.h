// What resharding has to do: shards to make, and the shards in place that they are made of.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/domain/plan_request.h"
#include "common/domain/resharding.h"

namespace neuroshard {

// Sums stop at 2^60.
inline void AddBytes(std::int64_t& sum, std::int64_t bytes) {
  sum = std::min(sum + bytes, std::int64_t{1} << 60);
}

// A shard in place on a rank of the topology.
struct HeldShard {
  TableShard held;
  std::int64_t bytes = 0;  // weights and optimizer state, by the memory rule
  bool stays = false;      // the new plan has it, too
  int users = 0;           // shards to be made of it
};

// A part and the shard in place that it is of; -1: outside of the topology, or stays where it is.
struct SourcedPart {
  MovedPart moved;
  int holder = -1;
};

struct ShardToMake {
  TableShard made;
  std::int64_t bytes = 0;
  std::vector<SourcedPart> parts;
  std::vector<int> holders;  // each once, those that stay left out
};

struct ReshardingProblem {
  std::vector<HeldShard> held;
  std::vector<ShardToMake> jobs;
  std::vector<std::int64_t> capacity_bytes;  // by rank, without the reserve
  std::vector<std::int64_t> free_bytes;      // before anything is done; negative: over its capacity
};

// The request must have a migration. As Reshard.
StatusOr<ReshardingProblem> MakeReshardingProblem(const PlanRequest& request, const Plan& plan);

}  // namespace neuroshard
