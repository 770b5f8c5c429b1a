// Resharding: from a plan in place to another, shard by shard, within every rank's memory.
//
// A rank makes each shard that is new to it in whole, next to all that it holds, from parts that it
// has itself or gets from others; a shard of the plan in place goes when all that is made of it is
// made. A shard that both plans have on the same rank stays untouched; with another kernel or load
// factor, which take other memory, it is made anew. Memory is that of devices, and where hosts have
// them, host memory and SSDs with the limits of ranks. It counts weights, optimizer state, caches
// and the reserve by the request's rule: between steps of training no ids and activations are held.
// Tables that are gone, or have another size now, go before the first step;
// new ones and those of another size come after the last.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/status.h"
#include "common/domain/plan.h"
#include "common/domain/plan_request.h"

namespace neuroshard {

// How a part travels. kBuffer: from memory outside of the ranks, where a shard had to wait.
// kOutside: from a rank that the topology does not have any more, or from a checkpoint.
enum class PartLink { kSameRank, kIntraHost, kInterHost, kBuffer, kOutside };

NS_WORDS(PartLink, {kSameRank, "same_rank"}, {kIntraHost, "intra_host"}, {kInterHost, "inter_host"},
         {kBuffer, "buffer"}, {kOutside, "outside"});

// A rectangle of a new shard and where it comes from. Its `rank` is the one that gets it.
struct MovedPart {
  Shard part;
  int from_rank = 0;  // that held it in the plan in place
  PartLink link = PartLink::kSameRank;
  std::int64_t weights_bytes = 0;
  std::int64_t optimizer_bytes = 0;  // state of its rows and columns; no gradients
  MemoryTier from_memory = MemoryTier::kDevice;
  MemoryTier memory = MemoryTier::kDevice;  // that it goes to

  // Whether it counts as moved: it is new on its rank, or in its memory there.
  bool moves() const { return link != PartLink::kSameRank || from_memory != memory; }
  bool operator==(const MovedPart&) const = default;
};

// A shard of the table at this index in the request.
struct TableShard {
  int table = 0;
  Shard shard;

  bool operator==(const TableShard&) const = default;
};

// A shard of the new plan and what it is made of; the parts tile it.
struct MadeShard {
  TableShard made;
  std::vector<MovedPart> parts;

  bool operator==(const MadeShard&) const = default;
};

// All at the same time; the next step begins when everything is done.
struct ReshardingStep {
  std::vector<TableShard> to_buffer;  // copied out of their ranks
  std::vector<MadeShard> made;
  std::vector<TableShard>
      freed;  // at the end of the step; those that went to the buffer are among them

  bool operator==(const ReshardingStep&) const = default;
};

// kFits: the order needs no buffer. kNeedsBuffer: no order does without. kNoneFound: none without
// was found.
enum class OrderKind { kFits, kNeedsBuffer, kNoneFound };

NS_WORDS(OrderKind, {kFits, "fits"}, {kNeedsBuffer, "needs_buffer"}, {kNoneFound, "none_found"});

// Why a rank waits: the new shard does not fit into `memory` while `holds` is there, which goes only
// when a shard on `next_rank` is made. `holds` may be on another rank of the same host where they
// share the memory.
struct Waiting {
  int rank = 0;
  TableShard wants;
  TableShard holds;
  int next_rank = 0;
  MemoryTier memory = MemoryTier::kDevice;

  bool operator==(const Waiting&) const = default;
};

// A limit of host memory or of SSDs, and the most that is taken of it at a time.
struct SharedMemoryPeak {
  MemoryTier memory = MemoryTier::kHost;
  int host = 0;
  std::optional<int> rank;  // whose own limit it is; none: all ranks of the host share it
  std::int64_t peak_bytes = 0;
  std::int64_t capacity_bytes = 0;

  bool operator==(const SharedMemoryPeak&) const = default;
};

struct Resharding {
  std::vector<TableShard> freed_first;  // that nothing is made of: replicas too many
  std::vector<ReshardingStep> steps;
  // By PartLink, weights and optimizer state together, of parts that move (MovedPart::moves): those
  // of kSameRank go from one memory to another. What goes to the buffer counts when it comes back.
  std::array<std::int64_t, kWords<PartLink>.size()> bytes_by_link{};
  OrderKind order = OrderKind::kFits;
  std::int64_t buffer_bytes = 0;             // most that the buffer holds at a time
  std::vector<Waiting> cycle;                // of ranks that wait for each other; empty with kFits
  std::vector<std::int64_t> peak_bytes;      // of its device, by rank
  std::vector<std::int64_t> capacity_bytes;  // of its device, by rank, without the reserve
  // Every limit that the request states, host memory first, by host and by rank.
  std::vector<SharedMemoryPeak> shared;

  bool operator==(const Resharding&) const = default;
};

// From request.migration->previous to `plan`, which must be a plan of the request. A memory
// that holds more than its capacity now takes nothing on before that fits. FAILED_PRECONDITION: no
// migration, or a rank or host on which the weights and optimizer states of `plan` alone do not
// fit.
// Deterministic. About O(k log k) for k shards, where greedy orders fit; else up to some 100,000
// steps of a search.
StatusOr<Resharding> Reshard(const PlanRequest& request, const Plan& plan);

}  // namespace neuroshard
