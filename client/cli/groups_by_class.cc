#include "client/cli/groups_by_class.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "client/cli/plan_output.h"
#include "common/base/violations.h"
#include "common/codec/plan_codec.h"
#include "common/codec/topology_codec.h"
#include "common/domain/memory_pools.h"
#include "common/domain/table_names.h"

namespace neuroshard {
namespace {

constexpr int kMaxPairsReplanned = 8;

TableKind KindOf(const v1::Table& table) {
  return FromText<TableKind>(table.kind()).value_or(TableKind::kEmbeddingBag);
}

// A plan of each kind.
struct Pair {
  const PlannedRow* pooled;
  const PlannedRow* unpooled;
  double ms_a_batch = 0;
};

// The place of a rank in its group: the inverse of RankOfGroup.
std::size_t PlaceOf(int rank, const Groups& groups) {
  return static_cast<std::size_t>(groups.ranks == GroupRanks::kContiguous ? rank % groups.size
                                                                          : rank / groups.replicas);
}

// What both plans are on all ranks together: the cost of the costliest, and the memory of each. A
// plan made beside another one counts that one's room as reserve; the smaller reserve is the
// request's.
PlanCost Together(const Pair& pair) {
  const PlanCost pooled = DecodePlanCost(pair.pooled->answer.cost());
  const PlanCost unpooled = DecodePlanCost(pair.unpooled->answer.cost());
  PlanCost both;
  for (int rank = 0; rank < pair.pooled->row.devices(); ++rank) {
    RankCost sum = pooled.ranks[PlaceOf(rank, *pair.pooled->groups)];
    const RankCost& other = unpooled.ranks[PlaceOf(rank, *pair.unpooled->groups)];
    both.embedding_cost_ms = std::max(both.embedding_cost_ms, sum.total_ms() + other.total_ms());
    const std::int64_t reserve = std::min(sum.memory.reserve_bytes, other.memory.reserve_bytes);
    sum.memory += other.memory;
    sum.memory.reserve_bytes = reserve;
    both.ranks.push_back(sum);
  }
  return both;
}

double MsABatch(const Pair& pair, const PlanCost& together) {
  return together.embedding_cost_ms + SyncMsABatch(pair.pooled->row) +
         SyncMsABatch(pair.unpooled->row);
}

// `left`: all that the topology has. A rank without tables may have a reserve of more than its
// device.
bool Fits(MemoryPools left, const PlanCost& together) {
  const int ranks = static_cast<int>(together.ranks.size());
  for (int rank = 0; rank < ranks; ++rank) {
    const MemoryUse& use = together.ranks[static_cast<std::size_t>(rank)].memory;
    left.Add(rank, use.by_tier());
    if (use.total_bytes() > use.reserve_bytes && left.LeftOnDevice(rank) < 0) return false;
    if (left.SharesTooMuch(rank)) return false;
  }
  return true;
}

// The tables of a kind alone in the groups of `row`, prepared.
PlannedRow PartOf(TableKind kind, const v1::ShardPlanRequest& request, const PlannedRow& row) {
  PlannedRow part = {row.topology, row.groups};
  PrepareRow(OfKind(kind, request), part);
  return part;
}

// PartOf in what the fullest rank of `first` leaves of each memory.
PlannedRow PartBeside(const PlannedRow& first, TableKind kind, const v1::ShardPlanRequest& request,
                      const PlannedRow& row) {
  PlannedRow part = PartOf(kind, request, row);
  TierBytes taken = {};
  for (const RankCost& rank : DecodePlanCost(first.answer.cost()).ranks) {
    TierBytes bytes = rank.memory.by_tier();
    bytes[MemoryTier::kDevice] -= rank.memory.reserve_bytes;
    for (const auto& [tier, name] : kWords<MemoryTier>) {
      taken[tier] = std::max(taken[tier], bytes[tier]);
    }
  }
  v1::MemoryModel& model = *part.request.mutable_memory();
  model.set_reserve_bytes(model.reserve_bytes() + taken[MemoryTier::kDevice]);
  Topology left = part.groups->of_one;
  // A byte is left: 0 would be no limit of a device, and a host of 0 may not have limits.
  const auto take = [](std::int64_t& from, std::int64_t bytes) {
    if (from > 0) from = std::max<std::int64_t>(1, from - bytes);
  };
  const std::vector<HostRanks> hosts = left.hosts();
  for (const SharedMemory& memory : kSharedMemories) {
    const std::int64_t bytes = taken[memory.tier];
    for (std::size_t h = 0; h < (left.*memory.of_hosts).size(); ++h) {
      take((left.*memory.of_hosts)[h], bytes * hosts[h].count);
    }
    for (Device& device : left.devices) take(device.*memory.most, bytes);
  }
  *part.request.mutable_topology()->mutable_hosts() = EncodeTopology(left).hosts();
  return part;
}

v1::WhatIfRow RowOfPair(const Pair& pair, const PlanCost& together) {
  const PlannedRow& unpooled = *pair.unpooled;
  v1::WhatIfRow row = pair.pooled->row;
  row.set_name(fmt::format("{}, EmbeddingCollection in {}", row.name(), unpooled.groups->name()));
  row.clear_lower_bound();
  const v1::TwoDimensionalRow& inner = unpooled.row.two_dimensional();
  v1::TwoDimensionalRow& groups = *row.mutable_two_dimensional();
  groups.set_sync_bytes(groups.sync_bytes() + inner.sync_bytes());
  groups.set_sync_ms(groups.sync_ms() + inner.sync_ms());
  groups.set_fastest(true);
  *groups.mutable_plan() = pair.pooled->answer.plan();
  v1::TwoDimensionalSubmodule& submodule = *groups.add_submodule_configs();
  submodule.set_kind(std::string(ToText(TableKind::kEmbedding)));
  submodule.set_sharding_group_size(inner.sharding_group_size());
  submodule.set_use_inter_host_allreduce(inner.use_inter_host_allreduce());
  submodule.set_replicas(inner.replicas());
  submodule.set_sync_bytes(inner.sync_bytes());
  submodule.set_sync_ms(inner.sync_ms());
  *submodule.mutable_plan() = unpooled.answer.plan();
  // What was not measured of one kind was not of both.
  if (row.price_basis().kind() == "measured") {
    *row.mutable_price_basis() = unpooled.row.price_basis();
  }
  for (const std::string& warning : unpooled.row.warnings()) {
    if (std::ranges::count(row.warnings(), warning) == 0) row.add_warnings(warning);
  }
  TakeCost(EncodePlanCost(together), *pair.pooled->topology, row);
  return row;
}

}  // namespace

bool HasBothKinds(const v1::ShardPlanRequest& request) {
  std::set<TableKind> kinds;
  for (const v1::Table& table : request.tables()) kinds.insert(KindOf(table));
  return kinds.size() == 2;
}

std::string WhyNotApart(const v1::ShardPlanRequest& request) {
  const v1::Constraints& constraints = request.constraints();
  if (constraints.max_shards_per_rank() > 0) return "constraints.max_shards_per_rank";
  if (constraints.max_tables_per_rank() > 0) return "constraints.max_tables_per_rank";
  const TableNames names = NamesOf(request);
  for (const auto& [field, groups] : {std::pair{"colocate", &constraints.colocate()},
                                      std::pair{"separate", &constraints.separate()}}) {
    for (const v1::TableGroup& group : *groups) {
      std::set<TableKind> kinds;
      for (const std::string& text : group.tables()) {
        const int table = names.Resolve(text);
        if (table >= 0) kinds.insert(KindOf(request.tables(table)));
      }
      if (kinds.size() > 1) return fmt::format("constraints.{}", field);
    }
  }
  if (request.has_migration()) return "migration";
  if (!request.search().goals().empty()) return "search.goals";
  if (request.search().objective() == "mean_of_max") return "search.objective mean_of_max";
  return request.memory().dense_bytes() > 0 ? "memory.dense_bytes" : "";
}

v1::ShardPlanRequest OfKind(TableKind kind, v1::ShardPlanRequest request) {
  const TableNames names = NamesOf(request);
  const auto leave_own = [&](auto& demands) {
    for (auto& demand : demands) {
      EraseIf(*demand.mutable_tables(), [&](const std::string& text) {
        const int table = names.Resolve(text);
        return table >= 0 && KindOf(request.tables(table)) != kind;
      });
    }
    EraseIf(demands, [](const auto& demand) { return demand.tables().empty(); });
  };
  if (request.has_constraints()) {
    leave_own(*request.mutable_constraints()->mutable_tables());
    leave_own(*request.mutable_constraints()->mutable_colocate());
    leave_own(*request.mutable_constraints()->mutable_separate());
  }
  EraseIf(*request.mutable_tables(), [&](const v1::Table& table) { return KindOf(table) != kind; });
  return request;
}

std::optional<v1::WhatIfRow> FastestByClass(const PlannerClient& planner,
                                            const v1::ShardPlanRequest& request,
                                            std::span<const PlannedRow> planned,
                                            v1::WhatIfRow& uniform) {
  const auto exists = [](const PlannedRow& row) { return row.groups->fault.ok(); };
  if (!HasBothKinds(request) || std::ranges::count_if(planned, exists) < 2) return std::nullopt;
  const std::string untried = "groups of their own for tables of kind embedding were not ";
  if (const std::string why = WhyNotApart(request); !why.empty()) {
    uniform.add_warnings(fmt::format("{}tried: {} is of both kinds", untried, why));
    return std::nullopt;
  }
  std::string failure;
  const auto plan = [&](std::span<PlannedRow> parts) {
    RunSideBySide(parts.size(), [&](std::size_t i) { PlanRow(planner, parts[i]); });
    for (const PlannedRow& part : parts) {
      const bool has_none = absl::IsFailedPrecondition(part.failure);
      if (failure.empty() && !has_none) failure = part.row.failure();
    }
  };
  std::vector<PlannedRow> parts;  // in turn of pooled and of unpooled tables
  for (const PlannedRow& row : planned) {
    if (!exists(row)) continue;
    parts.push_back(PartOf(TableKind::kEmbeddingBag, request, row));
    parts.push_back(PartOf(TableKind::kEmbedding, request, row));
  }
  plan(parts);
  // What one model priced does not compare with what another did.
  const std::string model = uniform.cost_model().SerializeAsString();
  const auto compares = [&](const PlannedRow& part) {
    return part.failure.ok() && part.answer.cost().ranks_size() == part.groups->size &&
           part.row.cost_model().SerializeAsString() == model;
  };
  double least_ms = uniform.embedding_cost_ms() + SyncMsABatch(uniform);
  std::vector<Pair> pairs;
  for (std::size_t p = 0; p < parts.size(); p += 2) {
    for (std::size_t u = 1; u < parts.size(); u += 2) {
      if (u == p + 1 || !compares(parts[p]) || !compares(parts[u])) continue;
      Pair pair = {&parts[p], &parts[u]};
      pair.ms_a_batch = MsABatch(pair, Together(pair));
      if (pair.ms_a_batch < least_ms) pairs.push_back(pair);
    }
  }
  std::ranges::stable_sort(pairs, {}, &Pair::ms_a_batch);
  Violations none;
  PlanRequest without_tables;
  without_tables.topology = DecodeTopology(planned.front().topology->topology(), none);
  const MemoryPools pools(without_tables);
  std::optional<v1::WhatIfRow> fastest;
  const auto take = [&](const Pair& pair) {
    const PlanCost together = Together(pair);
    const double ms = MsABatch(pair, together);
    if (ms >= least_ms || !Fits(pools, together)) return false;
    least_ms = ms;
    fastest = RowOfPair(pair, together);
    return true;
  };
  int replanned = 0;
  for (const Pair& pair : pairs) {
    if (pair.ms_a_batch >= least_ms) break;
    if (take(pair) || replanned == kMaxPairsReplanned) continue;
    ++replanned;
    const auto& [pooled, unpooled, ms] = pair;
    std::array again = {PartBeside(*unpooled, TableKind::kEmbeddingBag, request, *pooled),
                        PartBeside(*pooled, TableKind::kEmbedding, request, *unpooled)};
    plan(again);
    if (compares(again[0])) take({&again[0], unpooled});
    if (compares(again[1])) take({pooled, &again[1]});
  }
  if (!failure.empty()) {
    (fastest ? *fastest : uniform).add_warnings(fmt::format("{}all tried: {}", untried, failure));
  }
  return fastest;
}

}  // namespace neuroshard
