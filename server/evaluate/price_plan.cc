#include "server/evaluate/price_plan.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "server/evaluate/placement_price.h"
#include "server/evaluate/resolved_shards.h"

namespace neuroshard {
namespace {

// What the ranks hold, as the model sees it.
struct RankLoads {
  std::vector<ComputeCost> compute;  // 0 for ranks that hold nothing
  std::vector<float> forward;
  std::vector<float> backward;
  ShardKinds kinds;  // of all together
};

// Sums phi and loads per rank and runs the head on the ranks that hold something.
RankLoads LoadsOfRanks(const PlanRequest& request, const std::vector<ResolvedShard>& shards,
                       const CostModel& model) {
  const std::size_t num_ranks = request.topology.devices.size();
  const std::size_t width = static_cast<std::size_t>(model.representation_width());
  std::vector<ShardFeatures> features;
  features.reserve(shards.size());
  for (const ResolvedShard& s : shards) {
    features.push_back(FeaturesOf(s));
  }
  std::vector<float> phi(shards.size() * width);
  std::vector<CommLoad> loads(shards.size());
  if (!features.empty()) model.Represent(ConditionsOf(request), features, phi, loads);

  RankLoads of_ranks;
  of_ranks.compute.resize(num_ranks);
  of_ranks.forward.resize(num_ranks, 0.0F);
  of_ranks.backward.resize(num_ranks, 0.0F);
  std::vector<int> row_of_rank(num_ranks, -1);
  std::vector<float> sums;
  int rows = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::size_t rank = static_cast<std::size_t>(shards[i].shard->rank);
    of_ranks.forward[rank] += loads[i].forward;
    of_ranks.backward[rank] += loads[i].backward;
    of_ranks.kinds |= loads[i].kinds;
    int& row = row_of_rank[rank];
    if (row < 0) {
      row = rows++;
      sums.resize(sums.size() + width, 0.0F);
    }
    float* sum = sums.data() + static_cast<std::size_t>(row) * width;
    for (std::size_t w = 0; w < width; ++w) sum[w] += phi[i * width + w];
  }
  std::vector<ComputeCost> of_rows(static_cast<std::size_t>(rows));
  if (rows > 0) model.ComputeCosts(sums, of_rows);
  for (std::size_t r = 0; r < num_ranks; ++r) {
    if (row_of_rank[r] >= 0) {
      of_ranks.compute[r] = of_rows[static_cast<std::size_t>(row_of_rank[r])];
    }
  }
  return of_ranks;
}

}  // namespace

StatusOr<PlanCost> PricePlan(const PlanRequest& request, const Plan& plan, const CostModel& model) {
  const int num_ranks = request.topology.num_ranks();
  NS_RETURN_IF_ERROR(model.CheckConditions(ConditionsOf(request)));
  NS_ASSIGN_OR_RETURN(const std::vector<ResolvedShard> shards, ResolveShards(request, plan));

  PlanCost cost;
  cost.ranks.resize(static_cast<std::size_t>(num_ranks));
  for (const ResolvedShard& s : shards) {
    RankCost& rank = cost.ranks[static_cast<std::size_t>(s.shard->rank)];
    if (s.layout.type != ShardingType::kDataParallel) rank.dim_sum += s.shard->cols;
    rank.memory += ShardMemory(request, *s.table, s.layout, s.shard->rows, s.shard->cols);
  }
  const RankLoads loads = LoadsOfRanks(request, shards, model);
  std::vector<float> compute_ms;
  for (const ComputeCost& compute : loads.compute) compute_ms.push_back(compute.total_ms);
  PlacementPrices prices;
  PricePlacements(model, num_ranks, compute_ms, loads.forward, loads.backward, prices,
                  {&loads.kinds, 1});

  cost.embedding_cost_ms = prices.cost_ms.empty() ? 0 : prices.cost_ms.front();
  for (std::size_t r = 0; r < cost.ranks.size(); ++r) {
    RankCost& rank = cost.ranks[r];
    rank.compute_ms = loads.compute[r].total_ms;
    if (model.info().splits_compute) {
      rank.forward_compute_ms = loads.compute[r].forward_ms;
      rank.backward_compute_ms = loads.compute[r].backward_ms;
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
