// The order of resharding: what is made when, so that no rank holds more than it can.
#pragma once

#include <cstdint>
#include <vector>

#include "common/domain/resharding.h"
#include "common/domain/resharding_problem.h"

namespace neuroshard {

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
