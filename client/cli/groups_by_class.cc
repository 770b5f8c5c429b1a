#include "client/cli/groups_by_class.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "client/cli/side_by_side.h"
#include "common/base/violations.h"
#include "common/codec/plan_codec.h"
#include "common/codec/topology_codec.h"
#include "common/domain/table_names.h"

namespace neuroshard {
namespace {

constexpr int kMaxPairsReplanned = 8;

TableKind KindOf(const v1::Table& table) {
  return FromText<TableKind>(table.kind()).value_or(TableKind::kEmbeddingBag);
}

TableNames NamesOf(const v1::ShardPlanRequest& request) {
  TableNames names;
  for (const v1::Table& table : request.tables()) names.Add(table.module(), table.name());
  return names;
}

template <typename Each, typename Gone>
void EraseIf(google::protobuf::RepeatedPtrField<Each>& all, const Gone& gone) {
  all.erase(std::remove_if(all.begin(), all.end(), gone), all.end());
}

// A plan of each kind.
struct Pair {
  const PlannedRow* pooled;
  const PlannedRow* unpooled;
  double ms_a_batch = 0;
};

// The place in its group of every rank.
std::vector<std::size_t> PlacesOf(const Groups& groups) {
  const int world_size = groups.size * groups.replicas;
  std::vector<std::size_t> places(static_cast<std::size_t>(world_size));
  for (int group = 0; group < groups.replicas; ++group) {
    for (int place = 0; place < groups.size; ++place) {
      const int rank = RankOfGroup(world_size, groups.size, groups.ranks, group, place);
      places[static_cast<std::size_t>(rank)] = static_cast<std::size_t>(place);
    }
  }
  return places;
}

// What both plans are on all ranks together: the cost of the costliest, and the memory of each. Of
// the two reserves the smaller is the request's: the other has room for a plan besides.
PlanCost Together(const Pair& pair) {
  const std::array plans = {pair.pooled, pair.unpooled};
  std::array<PlanCost, 2> costs;
  std::array<std::vector<std::size_t>, 2> places;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    costs[i] = DecodePlanCost(plans[i]->answer.cost());
    places[i] = PlacesOf(plans[i]->groups.value());
  }
  PlanCost both;
  for (std::size_t rank = 0; rank < places[0].size(); ++rank) {
    RankCost sum = costs[0].ranks[places[0][rank]];
    const RankCost& other = costs[1].ranks[places[1][rank]];
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

bool Fits(const Topology& topology, const PlanCost& together) {
  for (const RankCost& rank : together.ranks) {
    if (rank.memory.total_bytes() > rank.capacity_bytes) return false;
  }
  const std::vector<HostRanks> hosts = topology.hosts();
  for (const SharedMemory& memory : kSharedMemories) {
    const std::vector<std::int64_t>& of_hosts = topology.*memory.of_hosts;
    for (std::size_t h = 0; h < hosts.size(); ++h) {
      std::int64_t taken = 0;
      for (int i = 0; i < hosts[h].count; ++i) {
        const auto rank = static_cast<std::size_t>(hosts[h].first + i);
        const std::int64_t bytes = together.ranks[rank].memory.by_tier()[memory.tier];
        const std::int64_t most = topology.devices[rank].*memory.most;
        if (most > 0 && bytes > most) return false;
        taken += bytes;
      }
      if (taken > (of_hosts.empty() ? 0 : of_hosts[h])) return false;
    }
  }
  return true;
}

// Plans `row` once more, in what the fullest rank of `first` leaves of each memory.
void PlanBeside(const PlannerClient& planner, const PlannedRow& first, PlannedRow& row) {
  TierBytes taken = {};
  for (const RankCost& rank : DecodePlanCost(first.answer.cost()).ranks) {
    TierBytes bytes = rank.memory.by_tier();
    bytes[MemoryTier::kDevice] -= rank.memory.reserve_bytes;
    for (const auto& [tier, name] : kWords<MemoryTier>) {
      taken[tier] = std::max(taken[tier], bytes[tier]);
    }
  }
  v1::MemoryModel& model = *row.request.mutable_memory();
  model.set_reserve_bytes(model.reserve_bytes() + taken[MemoryTier::kDevice]);
  Topology left = row.groups->of_one;
  const std::vector<HostRanks> hosts = left.hosts();
  for (const SharedMemory& memory : kSharedMemories) {
    const std::int64_t bytes = taken[memory.tier];
    for (std::size_t h = 0; h < (left.*memory.of_hosts).size(); ++h) {
      std::int64_t& of_host = (left.*memory.of_hosts)[h];
      of_host = std::max<std::int64_t>(0, of_host - bytes * hosts[h].count);
    }
    for (Device& device : left.devices) {
      std::int64_t& most = device.*memory.most;
      if (most > 0) most = std::max<std::int64_t>(1, most - bytes);
    }
  }
  *row.request.mutable_topology()->mutable_hosts() = EncodeTopology(left).hosts();
  PlanRow(planner, row);
}

v1::WhatIfRow RowOfPair(const Pair& pair, const PlanCost& together,
                        const v1::ShardPlanRequest& request) {
  const PlannedRow& pooled = *pair.pooled;
  const PlannedRow& unpooled = *pair.unpooled;
  v1::WhatIfRow row = RowWithoutPlan(
      *pooled.topology,
      fmt::format("{}, EmbeddingCollection in {}", pooled.groups->name(), unpooled.groups->name()),
      request);
  const v1::TwoDimensionalRow& inner = unpooled.row.two_dimensional();
  v1::TwoDimensionalRow& groups = *row.mutable_two_dimensional();
  groups = pooled.row.two_dimensional();
  groups.set_sync_bytes(groups.sync_bytes() + inner.sync_bytes());
  groups.set_sync_ms(groups.sync_ms() + inner.sync_ms());
  groups.set_fastest(true);
  *groups.mutable_plan() = pooled.answer.plan();
  v1::TwoDimensionalSubmodule& submodule = *groups.add_submodule_configs();
  submodule.set_kind(std::string(ToText(TableKind::kEmbedding)));
  submodule.set_sharding_group_size(inner.sharding_group_size());
  submodule.set_use_inter_host_allreduce(inner.use_inter_host_allreduce());
  submodule.set_replicas(inner.replicas());
  submodule.set_sync_bytes(inner.sync_bytes());
  submodule.set_sync_ms(inner.sync_ms());
  *submodule.mutable_plan() = unpooled.answer.plan();
  v1::ShardPlanResponse answer;
  *answer.mutable_cost() = EncodePlanCost(together);
  *answer.mutable_cost_model() = pooled.row.cost_model();
  *answer.mutable_price_basis() = pooled.row.price_basis();
  if (unpooled.row.price_basis().kind() != pooled.row.price_basis().kind()) {
    answer.mutable_price_basis()->set_kind("mixed");
  }
  std::set<std::string> warnings(pooled.row.warnings().begin(), pooled.row.warnings().end());
  warnings.insert(unpooled.row.warnings().begin(), unpooled.row.warnings().end());
  answer.mutable_warnings()->Assign(warnings.begin(), warnings.end());
  TakeAnswer(answer, *pooled.topology, row);
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

StatusOr<std::optional<v1::WhatIfRow>> FastestByClass(const PlannerClient& planner,
                                                      const v1::ShardPlanRequest& request,
                                                      std::span<const PlannedRow> planned,
                                                      const v1::WhatIfRow& uniform) {
  Violations none;
  const Topology topology = DecodeTopology(planned.front().topology->topology(), none);
  double least_ms = uniform.embedding_cost_ms() + SyncMsABatch(uniform);
  // What one model priced does not compare with what another did.
  const std::string model = uniform.cost_model().SerializeAsString();
  std::map<TableKind, std::vector<const PlannedRow*>> parts;
  for (const PlannedRow& row : planned) {
    if (!row.kind || row.answer.cost().ranks_size() != row.groups->size) continue;
    if (row.row.cost_model().SerializeAsString() == model) parts[*row.kind].push_back(&row);
  }
  std::vector<Pair> pairs;
  for (const PlannedRow* pooled : parts[TableKind::kEmbeddingBag]) {
    for (const PlannedRow* unpooled : parts[TableKind::kEmbedding]) {
      if (pooled->groups->name() == unpooled->groups->name()) continue;
      Pair pair = {pooled, unpooled};
      pair.ms_a_batch = MsABatch(pair, Together(pair));
      if (pair.ms_a_batch < least_ms) pairs.push_back(pair);
    }
  }
  std::ranges::stable_sort(pairs, {}, &Pair::ms_a_batch);
  std::optional<v1::WhatIfRow> fastest;
  const auto take = [&](const Pair& pair) {
    const PlanCost together = Together(pair);
    const double ms = MsABatch(pair, together);
    if (ms >= least_ms || !Fits(topology, together)) return;
    least_ms = ms;
    fastest = RowOfPair(pair, together, request);
  };
  int replanned = 0;
  for (const Pair& pair : pairs) {
    if (pair.ms_a_batch >= least_ms || replanned == kMaxPairsReplanned) break;
    take(pair);
    if (pair.ms_a_batch == least_ms) break;
    ++replanned;
    std::array<PlannedRow, 2> again = {*pair.pooled, *pair.unpooled};
    RunSideBySide(again.size(), [&](std::size_t i) {
      PlanBeside(planner, i == 0 ? *pair.unpooled : *pair.pooled, again[i]);
    });
    for (const PlannedRow& row : again) {
      if (absl::IsUnavailable(row.failure)) return row.failure;
    }
    if (again[0].failure.ok()) take({&again[0], pair.unpooled});
    if (again[1].failure.ok()) take({pair.pooled, &again[1]});
  }
  return fastest;
}

}  // namespace neuroshard
