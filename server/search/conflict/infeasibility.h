// Infeasibility: proofs that no plan can keep a request's demands.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/stop_signal.h"
#include "common/domain/plan_request.h"

namespace neuroshard {

struct Infeasibility {
  std::string reason;       // for a person
  std::vector<int> tables;  // which it is about, ascending: with these alone it is as impossible
};

// Sound, for caches of the load factors that searches try (CompiledRules::residencies), but not
// complete: nullopt means nothing. Tables may have any sharding type that constraints do
// not forbid; those that constraints leave to the cost model must have been written into them.
//
// What is looked at, until something is found: a table without a sharding type left; tables that
// must be both together and apart; a table of which no layout's largest shard fits an allowed rank;
// co-located tables too large or too many for each place they may share; separate tables with too
// few ranks or hosts between them (Hall's condition, by maximum flow); limits of shards and tables
// a rank, and memory, against what tables take at the least on the ranks they may use (maximum
// flow), and so the number of shards too large to be many on a rank; each range of memories, from a
// faster to a slower one, against the tables that may be in no other; the bytes that move at the
// least; and last, every plan there is, as far as a fixed number of steps goes. A group may have one
// table. Deterministic. `stop` is polled between one argument and the next; nullopt once it is true.
std::optional<Infeasibility> ProveInfeasible(const PlanRequest& request,
                                             const StopSignal& stop = NeverStop());

}  // namespace neuroshard
