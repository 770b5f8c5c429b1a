// Parts of the proofs of infeasibility.h: what tables take and move at the least in any plan
// that keeps the rules, whether ranks can take it, and what trying every plan comes to.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "server/evaluate/rules/compiled_rules.h"

namespace neuroshard {

// Sums of bytes in proofs stop here, at "more than anything": two of them add up inside int64.
inline constexpr std::int64_t kMaxFlow = std::int64_t{1} << 61;
inline std::int64_t CappedSum(std::int64_t a, std::int64_t b) { return std::min(kMaxFlow, a + b); }

// Bounds over all layouts that are left to the table; each holds by itself, no one layout need meet
// all of them.
struct LeastDemand {
  // Types of TableRules that have a layout of which each shard fits into an allowed rank that is
  // otherwise empty. Empty: there is none, and the rest means nothing.
  TypeSet types;
  int ranks = 0;           // with a shard of the table
  int shards = 0;          // a plan lists
  std::int64_t bytes = 0;  // on all ranks together
  std::int64_t piece = 0;  // of the largest shard
  // Filled if all of `types` take every rank: bytes on each of them. ranks and shards are then on
  // each rank, too.
  std::vector<std::int64_t> on_each_rank;
};

// By table. available[rank]: bytes that shards may take there; a rank without shards may have any.
std::vector<LeastDemand> LeastDemandsOf(const PlanRequest& request, const CompiledRules& rules,
                                        const std::vector<std::int64_t>& available);

struct LeastMoves {
  std::int64_t bytes = 0;   // move at the least, all tables together; saturates at 2^61
  std::vector<int> tables;  // of which some move, ascending
};

// types[t] are those the table may have, one at least. The request must have a migration.
LeastMoves LeastMovesOf(const PlanRequest& request, const CompiledRules& rules,
                        const std::vector<TypeSet>& types);

// Edges of a flow network: above, a proof would take seconds.
inline constexpr std::size_t kMaxFlowEdges = 2'000'000;

// A transport problem: can suppliers send all they have to sinks with limited room?
struct Supplier {
  std::int64_t supply = 0;
  // Whom it may send to; must outlive the call.
  const std::vector<int>* sinks = nullptr;
};

// nullopt: they can. Otherwise suppliers (ascending) that have more than all their sinks together
// have room for; with `most_per_pair`, more than those sinks would take from them at that much a
// pair. Integer maximum flow by Dinic's method; the violating set is the source's side of the
// minimum cut (Hall's condition). Nothing overflows while supplies and rooms are at most 2^62.
std::optional<std::vector<std::size_t>> FindOverfull(const std::vector<Supplier>& suppliers,
                                                     const std::vector<std::int64_t>& room,
                                                     std::int64_t most_per_pair);

struct OverfullRanks {
  std::vector<int> tables;  // that want too much, in no order
  std::int64_t wanted = 0;
  std::int64_t room = 0;
};

// Each table needs want(its least demand) in all, spread over its allowed ranks in any way;
// room[rank] is what there is (below 0 is 0). Tables that are on each rank
// (LeastDemand::on_each_rank) are not asked for what they want: taken[rank] is what all of them
// take there. Wants and rooms are at most 2^61. nullopt: there is enough, or there are too many
// ranks and sets of ranks to tell quickly.
std::optional<OverfullRanks> FindOverfullRanks(
    const CompiledRules& rules, const std::vector<LeastDemand>& least,
    std::vector<std::int64_t> room, const std::vector<std::int64_t>& taken,
    const std::function<std::int64_t(const LeastDemand&)>& want);

struct EveryPlanResult {
  std::optional<Plan> plan;  // one that keeps all rules, memory and the migration budget
  bool all_tried = false;    // without a plan: there is none
};

// types[t] are those that the table may have. Of each table the simplest layouts come first.
// Requests with many column cuts are not begun.
EveryPlanResult TryEveryPlan(const PlanRequest& request, const CompiledRules& rules,
                             const std::vector<TypeSet>& types);

}  // namespace neuroshard
