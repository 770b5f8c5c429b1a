#include "server/evaluate/lower_bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/cost/shard_features.h"
#include "server/evaluate/cost_floor.h"
#include "server/evaluate/memory_choices.h"
#include "server/evaluate/memory_price.h"
#include "server/evaluate/placement_price.h"
#include "server/evaluate/rules/compiled_rules.h"

namespace neuroshard {
namespace {

using FloorsOfTables = std::vector<std::vector<CostFloor>>;

constexpr double kPrecision = 1e-9;  // relative, of the certified bound

// What all ranks pay together at least, if no rank pays more than `cost_ms`: each table takes its
// cheapest floor with such a peak. `cost_ms` is no less than any table's smallest peak.
double TotalWithin(const FloorsOfTables& tables, double cost_ms) {
  double total_ms = 0;
  for (const std::vector<CostFloor>& floors : tables) {
    const auto above =
        std::upper_bound(floors.begin(), floors.end(), cost_ms,
                         [](double cost, const CostFloor& floor) { return cost < floor.peak_ms; });
    total_ms += (above - 1)->total_ms;
  }
  return total_ms;
}

// Ranks of compute_scale 1 that get through as much as the ranks of the model, and how much faster
// than such a rank the fastest one is. Communication is as fast on all: it counts as if the fast
// ranks were faster in it, too, and the slow ones are not slow.
struct Speeds {
  double ranks = 0;
  double fastest = 1;
};

Speeds SpeedsOf(const BoundCostModel& model) {
  Speeds speeds;
  for (std::size_t r = 0; r < static_cast<std::size_t>(model.num_ranks()); ++r) {
    const double speed = 1 / std::min(1.0, static_cast<double>(model.compute_scale(r)));
    speeds.ranks += speed;
    speeds.fastest = std::max(speeds.fastest, speed);
  }
  return speeds;
}

// The smallest cost that can hold all tables: TotalWithin falls as the cost rises, so whatever lies
// below the point where the ranks' sum reaches it is out of reach for every plan. A rank that is
// `speed` times as fast holds `speed` times its cost at scale 1. `credit_ms` is taken off the sum.
double SmallestCost(const FloorsOfTables& tables, const Speeds& speeds, double credit_ms) {
  double peak_ms = 0;
  for (const auto& floors : tables) peak_ms = std::max(peak_ms, floors.front().peak_ms);
  double low_ms = peak_ms / speeds.fastest;
  const auto total_within = [&](double cost_ms) {
    const double total_ms = TotalWithin(tables, std::max(peak_ms, cost_ms * speeds.fastest));
    return (total_ms - credit_ms) / speeds.ranks;
  };
  double high_ms = total_within(low_ms);
  if (high_ms <= low_ms) return low_ms;
  while (high_ms - low_ms > kPrecision * high_ms) {
    const double cost_ms = low_ms + (high_ms - low_ms) / 2;
    (total_within(cost_ms) <= cost_ms ? high_ms : low_ms) = cost_ms;
  }
  return low_ms;
}

LowerBound BoundOfFloors(const PlanRequest& request, const CompiledRules& rules,
                         const BoundCostModel& model, double row_capacity_bytes) {
  const MemoryChoices choices = MemoryChoicesOf(request, rules, model);
  // A batch's scope is that of any other, whether memory is short in it or not.
  const bool counts_memory = rules.has_off_device();
  const double price = counts_memory ? PriceOfMemory(choices, row_capacity_bytes) : 0;
  FloorsOfTables floors;
  for (const TableChoices& table : choices.tables) {
    floors.push_back(FloorsAtPrice(table, choices.caches, price, rules.num_ranks()));
  }
  std::string scope = fmt::format(
      "all plans of the allowed sharding types{}, even where they break {} or place tables against "
      "the constraints",
      counts_memory ? " whose tables fit into the memory of all devices together, with offload and "
                      "key_value where rules list them"
                    : "",
      counts_memory ? "the limits of single devices" : "memory limits");
  if (request.has_unpooled_tables()) scope += ", with TorchRec's blocks of unpooled tables";
  return {SmallestCost(floors, SpeedsOf(model), price * row_capacity_bytes), BoundKind::kCertified,
          std::move(scope)};
}

// All tables in one shard each.
struct UncutTables {
  UncutTables(const PlanRequest& request, const BoundCostModel& model)
      : phi_sum(static_cast<std::size_t>(model.representation_width())) {
    std::vector<ShardFeatures> shards;
    for (const Table& table : request.tables) {
      shards.push_back(FeaturesOf(table, {}, table.num_embeddings, table.embedding_dim));
    }
    std::vector<float> phi(shards.size() * phi_sum.size());
    std::vector<CommLoad> loads(shards.size());
    if (!shards.empty()) model.Represent(shards, phi, loads);
    for (std::size_t i = 0; i < phi.size(); ++i) phi_sum[i % phi_sum.size()] += phi[i];
    for (const CommLoad& load : loads) {
      forward_load += load.forward;
      backward_load += load.backward;
    }
  }

  std::vector<double> phi_sum;
  double forward_load = 0;
  double backward_load = 0;
};

// Whole tables alone, and a convex head: k ranks that hold something pay head(sum / k) on average.
LowerBound BoundOfWholeTables(const PlanRequest& request, const BoundCostModel& model) {
  const UncutTables uncut(request, model);
  const int most_ranks =
      std::min(request.topology.num_ranks(), static_cast<int>(request.tables.size()));
  std::vector<float> sums;
  for (int ranks = 1; ranks <= most_ranks; ++ranks) {
    for (const double sum : uncut.phi_sum) sums.push_back(static_cast<float>(sum / ranks));
  }
  std::vector<ComputeCost> compute(static_cast<std::size_t>(most_ranks));
  model.ComputeCosts(sums, compute);
  const auto least = std::min_element(
      compute.begin(), compute.end(),
      [](const ComputeCost& a, const ComputeCost& b) { return a.total_ms < b.total_ms; });
  float fastest = model.compute_scale(0);
  for (std::size_t r = 1; r < static_cast<std::size_t>(model.num_ranks()); ++r) {
    fastest = std::min(fastest, model.compute_scale(r));
  }
  return {least == compute.end() ? 0 : least->total_ms * fastest, BoundKind::kCertified,
          "all plans of whole tables, the only ones allowed; communication is left out"};
}

// An even spread of whole tables, which hardly any plan is.
LowerBound EvenSpread(const PlanRequest& request, const BoundCostModel& model) {
  const int num_ranks = request.topology.num_ranks();
  const std::size_t ranks = static_cast<std::size_t>(num_ranks);
  const UncutTables uncut(request, model);
  std::vector<float> sums;
  std::vector<int> kinds;
  for (int kind = 0; kind < model.num_kinds(); ++kind) {
    for (const double total : uncut.phi_sum) sums.push_back(static_cast<float>(total / num_ranks));
    kinds.push_back(kind);
  }
  std::vector<ComputeCost> compute(kinds.size());
  model.ComputeCosts(sums, compute, kinds);
  double speeds = 0;  // beside a rank of kind 0
  const float of_kind_0_ms = compute.front().total_ms;
  for (std::size_t r = 0; r < ranks; ++r) {
    const float ms = compute[static_cast<std::size_t>(model.kind(r))].total_ms;
    speeds += (ms > 0 ? of_kind_0_ms / ms : 1) / model.compute_scale(r);
  }
  // All end at the same time.
  const double share = speeds > 0 ? static_cast<double>(num_ranks) / speeds : 1;
  const std::vector<float> compute_ms(ranks, static_cast<float>(of_kind_0_ms * share));
  const std::vector<float> forward(ranks, static_cast<float>(uncut.forward_load / num_ranks));
  const std::vector<float> backward(ranks, static_cast<float>(uncut.backward_load / num_ranks));
  PlacementPrices prices;
  PricePlacements(model, compute_ms, forward, backward, prices);
  return {prices.cost_ms.front() + model.exposed_input_dist_fixed_ms(), BoundKind::kReference,
          "no bound: what whole tables would cost if all ranks shared them evenly; plans may cost "
          "less"};
}

// Whether no table, whole and alone on a rank, costs less with rows in host memory: with no cache,
// with the smallest and the largest one. The price of a shard grows or falls with its cache, and a
// kernel that is dearer for one shard is for every other (README of this folder).
bool FusedIsCheapest(const PlanRequest& request, const CompiledRules& rules,
                     const BoundCostModel& model) {
  if (!rules.has_off_device()) return true;
  std::vector<Residency> residencies = {Residency{}, Residency{ComputeKernel::kFusedUvm, 0},
                                        Residency{ComputeKernel::kFusedUvmCaching, 1e-6},
                                        Residency{ComputeKernel::kFusedUvmCaching, 1}};
  const Residency offload = {ComputeKernel::kOffload, 0};
  if (rules.PositionOf(offload) != 0) residencies.push_back(offload);
  if (rules.has_ssd()) {
    residencies.push_back({ComputeKernel::kKeyValue, 1e-6});
    residencies.push_back({ComputeKernel::kKeyValue, 1});
  }
  ShardPricer pricer(model);
  for (const Table& table : request.tables) {
    std::vector<ShardFeatures> shards;
    for (const Residency& residency : residencies) {
      shards.push_back(FeaturesOf(table, LayoutIn(residency, ShardingType::kTableWise, 1),
                                  table.num_embeddings, table.embedding_dim));
    }
    const std::span<const double> prices = pricer.Price(shards);
    if (std::any_of(prices.begin() + 1, prices.end(),
                    [&](double price) { return price < prices.front(); })) {
      return false;
    }
  }
  return true;
}

bool OnlyWholeTables(const CompiledRules& rules) {
  return std::all_of(rules.tables().begin(), rules.tables().end(), [](const TableRules& table) {
    return table.types == TypeSet{ShardingType::kTableWise};
  });
}

}  // namespace

LowerBound LowerBoundOf(const PlanRequest& request, const BoundCostModel& model) {
  return LowerBoundOf(request, model, RowCapacityBytes(request));
}

LowerBound LowerBoundOf(const PlanRequest& request, const BoundCostModel& model,
                        double row_capacity_bytes) {
  const ModelProperties& properties = model.properties();
  const CompiledRules rules(request, TypeSet(model.sharding_types()));
  if (properties.additive_compute && properties.separable_comm && properties.monotone_shard_costs &&
      FusedIsCheapest(request, rules, model)) {
    return BoundOfFloors(request, rules, model, row_capacity_bytes);
  }
  if (properties.convex_compute && OnlyWholeTables(rules) && !rules.has_off_device()) {
    return BoundOfWholeTables(request, model);
  }
  return EvenSpread(request, model);
}

}  // namespace neuroshard
