#include "server/evaluate/price_plan.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "server/evaluate/placement_price.h"
#include "server/evaluate/resolved_shards.h"

namespace neuroshard {
namespace {

// What tables take of a memory that the ranks of a host share.
std::vector<HostMemoryUse> UseOf(const SharedMemory& memory, const Topology& topology,
                                 const std::vector<RankCost>& ranks) {
  std::vector<HostMemoryUse> used;
  const std::vector<HostRanks> hosts = topology.hosts();
  const std::vector<std::int64_t>& of_hosts = topology.*memory.of_hosts;
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    MemoryUse of_host;
    for (int i = 0; i < hosts[h].count; ++i) {
      of_host += ranks[static_cast<std::size_t>(hosts[h].first + i)].memory;
    }
    const std::int64_t bytes = of_host.by_tier()[memory.tier];
    if (bytes == 0) continue;
    used.push_back({static_cast<int>(h), bytes, of_hosts.empty() ? 0 : of_hosts[h]});
  }
  return used;
}

// A stage of its own, which compute has, and its scale, where it is exposed.
void AddInputDist(const InputDist& input_dist, std::span<const ShardFeatures> shards, float scale,
                  float fixed_ms, RankCost& rank) {
  float ms = 0;  // summed as searches sum it
  for (const ShardFeatures& shard : shards) ms += input_dist.Ms(shard);
  ms *= scale;
  rank.input_dist_ms = ms + fixed_ms;
  rank.input_dist_hidden = !input_dist.exposed();
  if (input_dist.exposed()) rank.compute_ms -= ms;
}

}  // namespace

StatusOr<PlanCost> PricePlan(const PlanRequest& request, const Plan& plan,
                             const BoundCostModel& model) {
  NS_ASSIGN_OR_RETURN(const std::vector<ResolvedShard> shards, ResolveShards(request, plan));

  PlanCost cost;
  cost.ranks.resize(request.topology.devices.size());
  for (const ResolvedShard& s : shards) {
    RankCost& rank = cost.ranks[static_cast<std::size_t>(s.shard->rank)];
    if (s.layout.type != ShardingType::kDataParallel) rank.dim_sum += s.shard->cols;
    rank.memory += ShardMemory(request, *s.table, s.layout, s.shard->rows, s.shard->cols);
  }
  for (const SharedMemory& memory : kSharedMemories) {
    cost.shared[memory.tier] = UseOf(memory, request.topology, cost.ranks);
  }
  const std::vector<std::vector<ShardFeatures>> features =
      FeaturesByRank(shards, model.num_ranks());
  std::vector<ShardSetCost> ranks = model.CostsOfSets(features, model.kind_of_rank());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].compute = ranks[r].compute * model.compute_scale(r);
  }
  std::vector<float> compute_ms, forward_loads, backward_loads;
  ShardKinds kinds;
  const float fixed_ms = model.exposed_input_dist_fixed_ms();
  for (const ShardSetCost& rank : ranks) {
    compute_ms.push_back(rank.compute.total_ms + fixed_ms);
    forward_loads.push_back(rank.load.forward);
    backward_loads.push_back(rank.load.backward);
    kinds |= rank.load.kinds;
  }
  PlacementPrices prices;
  PricePlacements(model, compute_ms, forward_loads, backward_loads, prices, {&kinds, 1});

  cost.embedding_cost_ms = prices.cost_ms.empty() ? 0 : prices.cost_ms.front();
  for (std::size_t r = 0; r < cost.ranks.size(); ++r) {
    RankCost& rank = cost.ranks[r];
    rank.compute_ms = ranks[r].compute.total_ms;
    if (const auto& input_dist = model.input_dist(model.kind(r))) {
      AddInputDist(*input_dist, features[r], model.compute_scale(r),
                   input_dist->exposed() ? fixed_ms : input_dist->fixed_ms(), rank);
    }
    if (model.properties().splits_compute) {
      rank.forward_compute_ms = ranks[r].compute.forward_ms;
      rank.backward_compute_ms = ranks[r].compute.backward_ms;
    }
    rank.backward_comm_ms = prices.backward_comm_ms[r];
    rank.start_offset_ms = prices.start_offset_ms[r];
    rank.forward_comm_ms = prices.forward_comm_ms[r];
    rank.capacity_bytes = request.topology.devices[r].memory_bytes;
    rank.memory.reserve_bytes = ReserveBytes(request.memory, rank.capacity_bytes);
  }
  return cost;
}

}  // namespace neuroshard
