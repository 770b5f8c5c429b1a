// The order of resharding: what is made when, so that no rank holds more than it can.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/positions.h"
#include "common/domain/resharding.h"

namespace neuroshard {

// A shard in place on a rank of the topology.
struct HeldShard {
  TableShard held;
  TierBytes bytes = {};           // weights, optimizer state and caches, by the memory rule
  std::int64_t buffer_bytes = 0;  // that it takes in the buffer, where no cache holds rows twice
  bool stays = false;             // the new plan has it, too
  int users = 0;                  // shards to be made of it
};

// A part and the shard in place that it is of; -1: outside of the topology, or stays where it is.
struct SourcedPart {
  MovedPart moved;
  int holder = -1;
};

struct ShardToMake {
  TableShard made;
  TierBytes bytes = {};
  std::vector<SourcedPart> parts;
  std::vector<int> holders;  // each once, those that stay left out
};

// A memory with a limit: a rank's device, a host's memory or SSDs, or what a rank may take of them.
struct MemoryPool {
  MemoryTier memory = MemoryTier::kDevice;
  int host = 0;
  std::optional<int> rank;          // none: all ranks of the host share it
  std::int64_t capacity_bytes = 0;  // without the reserve
};

// What resharding has to do: shards to make, and the shards in place that they are made of.
struct ReshardingProblem {
  std::vector<HeldShard> held;
  std::vector<ShardToMake> jobs;
  std::vector<MemoryPool> pools;           // the devices first, by rank
  std::vector<std::vector<int>> pools_of;  // by rank, ascending: what its shards take bytes of
  std::vector<std::int64_t> free_bytes;    // by pool, before anything; negative: over its capacity

  const std::vector<int>& PoolsOf(const TableShard& shard) const {
    return At(pools_of, shard.shard.rank);
  }
  std::int64_t BytesIn(int pool, const TierBytes& bytes) const {
    return bytes[At(pools, pool).memory];
  }
};

// One thing after another: a shard in place is copied to the buffer, or a shard is made.
struct ReshardingEvent {
  enum class Kind { kToBuffer, kMake };
  Kind kind = Kind::kMake;
  int index = 0;  // of ReshardingProblem::held or ::jobs
};

struct ReshardingOrder {
  std::vector<ReshardingEvent> events;  // makes every job once
  OrderKind kind = OrderKind::kFits;
  std::vector<Waiting> cycle;
};

// Greedy in several orders, then a search over sets of made shards. Shards of which nothing is made
// must be gone (HeldShard::users 0 means freed already). Where nothing fits, shards in place go to
// the buffer, the fewest bytes first. Deterministic.
ReshardingOrder FindReshardingOrder(const ReshardingProblem& problem);

}  // namespace neuroshard
