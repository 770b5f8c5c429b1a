#include "server/evaluate/price_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "common/base/violations.h"
#include "common/domain/memory_use.h"
#include "common/domain/shard_layout.h"
#include "common/domain/table_names.h"
#include "server/cost/shard_features.h"
#include "server/evaluate/check_layout.h"
#include "server/evaluate/rules/row_cuts.h"

namespace neuroshard {
namespace {

// Points into the request and the plan.
struct ResolvedShard {
  const Table* table;
  ShardLayout layout;
  const Shard* shard;
};

// In plan order. INVALID_ARGUMENT, with all violations: unknown tables, shards outside their table,
// ranks that do not exist.
StatusOr<std::vector<ResolvedShard>> ResolveShards(const PlanRequest& request, const Plan& plan) {
  const std::vector<int> table_of = TablesOf(plan, request.tables);
  const RowCuts row_cuts(request);
  std::vector<ResolvedShard> resolved;
  Violations violations;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const TablePlan& table_plan = plan.tables[t];
    if (table_of[t] < 0) {
      violations.Add(
          fmt::format("plan.tables[{}].name", t),
          TableNames(request.tables).WhyUnresolved(FullName(table_plan.module, table_plan.name)));
      continue;
    }
    const Table& table = At(request.tables, table_of[t]);
    const ShardLayout layout = LayoutOf(table_plan, row_cuts.of(table_of[t]));
    for (std::size_t s = 0; s < table_plan.shards.size(); ++s) {
      const Shard& shard = table_plan.shards[s];
      if (CheckShardRange(table, layout.type, shard, request.topology.num_ranks(), {t, s},
                          violations)) {
        resolved.push_back({&table, layout, &shard});
      }
    }
  }
  if (!violations.empty()) return violations.ToStatus();
  return resolved;
}

// Calls visit(shard, is_new) in plan order. A shard is new where more than its place differs from the
// shard before.
template <typename Visit>
void VisitInOrder(const std::vector<ResolvedShard>& shards, const Visit& visit) {
  const ResolvedShard* before = nullptr;
  for (const ResolvedShard& s : shards) {
    visit(s, before == nullptr || s.table != before->table || s.layout != before->layout ||
                 s.shard->rows != before->shard->rows || s.shard->cols != before->shard->cols);
    before = &s;
  }
}

// The shards of each rank, in plan order.
ShardSets ShardsByRank(const std::vector<ResolvedShard>& shards, int num_ranks) {
  ShardSets by_rank;
  by_rank.sets.resize(static_cast<std::size_t>(num_ranks));
  VisitInOrder(shards, [&](const ResolvedShard& s, bool is_new) {
    if (is_new) {
      by_rank.shards.push_back(FeaturesOf(*s.table, s.layout, s.shard->rows, s.shard->cols));
    }
    At(by_rank.sets, s.shard->rank).push_back(static_cast<int>(by_rank.shards.size()) - 1);
  });
  return by_rank;
}

// What tables take of a memory that the ranks of a host share.
std::vector<HostMemoryUse> UseOf(const SharedMemory& memory, const Topology& topology,
                                 const std::vector<RankCost>& ranks) {
  std::vector<HostMemoryUse> used;
  const std::vector<HostRanks> hosts = topology.hosts();
  const std::vector<std::int64_t>& of_hosts = topology.*memory.of_hosts;
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    MemoryUse of_host;
    for (int i = 0; i < hosts[h].count; ++i) {
      of_host += At(ranks, hosts[h].first + i).memory;
    }
    const std::int64_t bytes = of_host.by_tier()[memory.tier];
    if (bytes == 0) continue;
    used.push_back({static_cast<int>(h), bytes, of_hosts.empty() ? 0 : of_hosts[h]});
  }
  return used;
}

// What the plan pays for each of its exchanges; none where the model does not price them.
std::vector<ExchangeCost> ExchangesOf(const std::vector<ResolvedShard>& shards,
                                      const BoundCostModel& model) {
  std::vector<ExchangeCost> exchanges;
  if (!model.prices_exchanges()) return exchanges;
  std::uint64_t seen = 0;
  VisitInOrder(shards, [&](const ResolvedShard& s, bool is_new) {
    if (!is_new) return;
    const ShardFeatures shard = FeaturesOf(*s.table, s.layout, s.shard->rows, s.shard->cols);
    const std::uint64_t exchange = model.comm().Load(shard).kinds.exchanges;
    if ((seen & exchange) != 0) return;
    seen |= exchange;
    exchanges.push_back({s.table->module, s.layout.type, model.comm().ExchangesMs(exchange)});
  });
  return exchanges;
}

// A stage of its own, which compute has, and its scale, where it is exposed.
void AddInputDist(const ShardSets& shards, const BoundCostModel& model, PlanCost& cost) {
  for (int kind = 0; kind < model.num_kinds(); ++kind) {
    const auto& input_dist = model.input_dist(kind);
    if (!input_dist) continue;
    std::vector<float> ms_of_shards;
    for (const ShardFeatures& shard : shards.shards) ms_of_shards.push_back(input_dist->Ms(shard));
    for (std::size_t r = 0; r < cost.ranks.size(); ++r) {
      if (model.kind(r) != kind) continue;
      float ms = 0;  // summed as searches sum it
      for (const int shard : shards.sets[r]) ms += At(ms_of_shards, shard);
      ms *= model.compute_scale(r);
      RankCost& rank = cost.ranks[r];
      rank.input_dist_ms =
          ms + (input_dist->exposed() ? model.fixed_rank_ms() : input_dist->fixed_ms());
      rank.input_dist_hidden = !input_dist->exposed();
      if (input_dist->exposed()) rank.compute_ms -= ms;
    }
  }
}

void AddComputeIntervals(const ShardSets& shards, const BoundCostModel& model, PlanCost& cost) {
  std::vector<ComputeCost> costs;
  for (std::size_t r = 0; r < cost.ranks.size(); ++r) {
    const RankCost& rank = cost.ranks[r];
    const ComputeCost of_rank = {static_cast<float>(rank.compute_ms),
                                 static_cast<float>(rank.forward_compute_ms.value_or(0)),
                                 static_cast<float>(rank.backward_compute_ms.value_or(0))};
    costs.push_back(of_rank * (1 / model.compute_scale(r)));  // the model's intervals know no ranks
  }
  const std::vector<ComputeInterval> intervals =
      model.ComputeIntervals(shards, costs, model.kind_of_rank());
  for (std::size_t r = 0; r < intervals.size(); ++r) {  // none where the model does not say
    RankIntervals& of_rank = cost.ranks[r].intervals;
    const double scale = model.compute_scale(r);
    const auto scaled = [scale](const CostInterval& interval) {
      return CostInterval{interval.low_ms * scale, interval.high_ms * scale};
    };
    of_rank.compute = scaled(intervals[r].total);
    if (intervals[r].forward) of_rank.forward_compute = scaled(*intervals[r].forward);
    if (intervals[r].backward) of_rank.backward_compute = scaled(*intervals[r].backward);
  }
}

void AddCommIntervals(const ShardSets& shards, const BoundCostModel& model, PlanCost& cost) {
  std::vector<CommLoad> loads;
  for (const ShardFeatures& shard : shards.shards) loads.push_back(model.comm().Load(shard));
  std::vector<RankComm> ranks(shards.sets.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (const int shard : shards.sets[r]) ranks[r].load += At(loads, shard);
    const RankCost& rank = cost.ranks[r];
    ranks[r].start_offset_ms = rank.start_offset_ms;
    ranks[r].forward_ms = rank.forward_comm_ms;
    ranks[r].backward_ms = rank.backward_comm_ms;
  }
  const std::vector<CommInterval> intervals = model.comm().Intervals(ranks);
  if (intervals.empty()) return;
  assert(intervals.size() == ranks.size());
  for (std::size_t r = 0; r < intervals.size(); ++r) {
    cost.ranks[r].intervals.forward_comm = intervals[r].forward;
    cost.ranks[r].intervals.backward_comm = intervals[r].backward;
  }
}

void AddInputDistIntervals(const BoundCostModel& model, PlanCost& cost) {
  for (std::size_t r = 0; r < cost.ranks.size(); ++r) {
    RankCost& rank = cost.ranks[r];
    const auto& input_dist = model.input_dist(model.kind(r));
    if (!input_dist || !rank.input_dist_ms) continue;
    rank.intervals.input_dist = input_dist->Interval(*rank.input_dist_ms);
  }
}

}  // namespace

void PricePlacements(const BoundCostModel& model, std::span<const float> compute_ms,
                     std::span<const float> forward_loads, std::span<const float> backward_loads,
                     PlacementPrices& prices, std::span<const ShardKinds> kinds) {
  const std::size_t ranks = static_cast<std::size_t>(model.num_ranks());
  const std::size_t cells = compute_ms.size();
  prices.backward_comm_ms.resize(cells);
  prices.start_offset_ms.resize(cells);
  prices.forward_comm_ms.resize(cells);
  prices.cost_ms.resize(cells / ranks);
  if (cells == 0) return;

  const auto add_setup = [&](float CommSetup::*stage, std::vector<float>& cost_ms) {
    for (std::size_t p = 0; p < kinds.size(); ++p) {
      const float setup_ms = model.comm().SetupOf(kinds[p]).*stage;
      for (std::size_t i = p * ranks; i < (p + 1) * ranks; ++i) {
        cost_ms[i] = std::max(0.0F, cost_ms[i] + setup_ms);
      }
    }
  };
  model.comm().BackwardCosts(backward_loads, prices.backward_comm_ms);
  add_setup(&CommSetup::backward_ms, prices.backward_comm_ms);
  for (std::size_t begin = 0; begin < cells; begin += ranks) {
    float first = compute_ms[begin] + prices.backward_comm_ms[begin];
    for (std::size_t i = begin; i < begin + ranks; ++i) {
      prices.start_offset_ms[i] = compute_ms[i] + prices.backward_comm_ms[i];
      first = std::min(first, prices.start_offset_ms[i]);
    }
    for (std::size_t i = begin; i < begin + ranks; ++i) prices.start_offset_ms[i] -= first;
  }
  model.comm().ForwardCosts(forward_loads, prices.start_offset_ms, prices.forward_comm_ms);
  add_setup(&CommSetup::forward_ms, prices.forward_comm_ms);
  for (std::size_t begin = 0; begin < cells; begin += ranks) {
    double cost_ms = 0;
    for (std::size_t i = begin; i < begin + ranks; ++i) {
      cost_ms = std::max(cost_ms, static_cast<double>(compute_ms[i]) + prices.backward_comm_ms[i] +
                                      prices.forward_comm_ms[i]);
    }
    prices.cost_ms[begin / ranks] = cost_ms;
  }
}

void PricePlacements(const BoundCostModel& model, std::span<const ShardSetCost> rank_costs,
                     float fixed_ms, PlacementPrices& prices) {
  const std::size_t ranks = static_cast<std::size_t>(model.num_ranks());
  std::vector<float> compute_ms, forward_loads, backward_loads;
  std::vector<ShardKinds> kinds(rank_costs.size() / ranks);
  for (std::size_t i = 0; i < rank_costs.size(); ++i) {
    const auto& [compute, load] = rank_costs[i];
    compute_ms.push_back(compute.total_ms + fixed_ms);
    forward_loads.push_back(load.forward);
    backward_loads.push_back(load.backward);
    kinds[i / ranks] |= load.kinds;
  }
  PricePlacements(model, compute_ms, forward_loads, backward_loads, prices, kinds);
}

StatusOr<PlanCost> PricePlan(const PlanRequest& request, const Plan& plan,
                             const BoundCostModel& model) {
  NS_ASSIGN_OR_RETURN(const std::vector<ResolvedShard> shards, ResolveShards(request, plan));

  PlanCost cost;
  cost.ranks.resize(request.topology.devices.size());
  MemoryUse use;
  VisitInOrder(shards, [&](const ResolvedShard& s, bool is_new) {
    RankCost& rank = At(cost.ranks, s.shard->rank);
    if (s.layout.type != ShardingType::kDataParallel) rank.dim_sum += s.shard->cols;
    if (is_new) use = ShardMemory(request, *s.table, s.layout, s.shard->rows, s.shard->cols);
    rank.memory += use;
  });
  for (const SharedMemory& memory : kSharedMemories) {
    cost.shared[memory.tier] = UseOf(memory, request.topology, cost.ranks);
  }
  const ShardSets by_rank = ShardsByRank(shards, model.num_ranks());
  std::vector<ShardSetCost> ranks = model.CostsOfSets(by_rank, model.kind_of_rank());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].compute = ranks[r].compute * model.compute_scale(r);
  }
  PlacementPrices prices;
  PricePlacements(model, ranks, model.fixed_rank_ms(), prices);

  cost.embedding_cost_ms = prices.cost_ms.empty() ? 0 : prices.cost_ms.front();
  for (std::size_t r = 0; r < cost.ranks.size(); ++r) {
    RankCost& rank = cost.ranks[r];
    rank.compute_ms = ranks[r].compute.total_ms;
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
  AddInputDist(by_rank, model, cost);
  cost.exchanges = ExchangesOf(shards, model);
  return cost;
}

Status AddIntervals(const PlanRequest& request, const Plan& plan, const BoundCostModel& model,
                    PlanCost& cost) {
  const double coverage = model.properties().interval_coverage;
  if (coverage == 0) return absl::OkStatus();
  NS_ASSIGN_OR_RETURN(const std::vector<ResolvedShard> resolved, ResolveShards(request, plan));
  const ShardSets shards = ShardsByRank(resolved, model.num_ranks());
  AddCommIntervals(shards, model, cost);
  AddComputeIntervals(shards, model, cost);
  AddInputDistIntervals(model, cost);
  for (RankCost& rank : cost.ranks) rank.intervals.total = TotalInterval(rank);
  cost.interval_coverage = coverage;
  cost.interval = EmbeddingCostInterval(cost.ranks, coverage);
  return absl::OkStatus();
}

std::span<const double> ShardPricer::Price(std::span<const ShardFeatures> shards) {
  const std::size_t count = shards.size();
  phi_.resize(count * static_cast<std::size_t>(model_.representation_width()));
  loads_.resize(count);
  compute_.resize(count);
  prices_.resize(count);
  if (count == 0) return prices_;
  model_.Represent(shards, phi_, loads_);
  kinds_.assign(count, 0);
  model_.ComputeCosts(phi_, compute_, kinds_);

  const std::size_t ranks = static_cast<std::size_t>(model_.num_ranks());
  const std::size_t cells = (count + ranks - 1) / ranks * ranks;
  cells_.assign(cells, 0.0F);
  comm_ms_.resize(cells);
  start_offsets_ms_.assign(cells, 0.0F);
  for (std::size_t i = 0; i < count; ++i) cells_[i] = loads_[i].backward;
  model_.comm().BackwardCosts(cells_, comm_ms_);
  for (std::size_t i = 0; i < count; ++i) {
    prices_[i] = static_cast<double>(compute_[i].total_ms) + comm_ms_[i];
    cells_[i] = loads_[i].forward;
  }
  model_.comm().ForwardCosts(cells_, start_offsets_ms_, comm_ms_);
  for (std::size_t i = 0; i < count; ++i) prices_[i] += comm_ms_[i];
  return prices_;
}

}  // namespace neuroshard
