#include "server/evaluate/lower_bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/positions.h"
#include "common/domain/table_names.h"
#include "server/cost/shard_features.h"
#include "server/evaluate/cost_floor.h"
#include "server/evaluate/memory_choices.h"
#include "server/evaluate/price_plan.h"
#include "server/evaluate/rules/compiled_rules.h"

namespace neuroshard {
namespace {

constexpr double kPrecision = 1e-9;  // relative, of the certified bound
// Sets of ranks that tables are confined to, looked at each by itself.
constexpr std::size_t kMaxRankSets = 64;

// Ranks of compute_scale 1 that get through as much as the ranks of the model, and how much faster
// than such a rank the fastest one is. Communication is as fast on all: it counts as if the fast
// ranks were faster in it, too, and the slow ones are not slow.
struct Speeds {
  double ranks = 0;
  double fastest = 1;
};

double SpeedOf(const BoundCostModel& model, std::size_t rank) {
  return 1 / std::min(1.0, static_cast<double>(model.compute_scale(rank)));
}

Speeds SpeedsOf(const BoundCostModel& model) {
  Speeds speeds;
  for (std::size_t r = 0; r < static_cast<std::size_t>(model.num_ranks()); ++r) {
    const double speed = SpeedOf(model, r);
    speeds.ranks += speed;
    speeds.fastest = std::max(speeds.fastest, speed);
  }
  return speeds;
}

// What the bound knows of a table.
struct BoundedTable {
  int table = 0;  // in PlanRequest::tables
  std::vector<CostFloor> floors;
  std::vector<CostFloor> priced_floors;  // with the price of memory; empty where it has none
  double every_rank_ms = 0;              // as in LayoutFloors
  double some_ranks_peak_ms = 0;

  double least_peak_ms() const { return floors.front().peak_ms; }
};

// Returns the total of the cheapest floor with such a peak, which is no less than the smallest one.
double TotalWithin(const std::vector<CostFloor>& floors, double peak_ms) {
  const auto above = std::ranges::upper_bound(floors, peak_ms, {}, &CostFloor::peak_ms);
  return above == floors.begin() ? above->total_ms : (above - 1)->total_ms;
}

// Whether all tables can be on the ranks at a cost, as far as floors tell. Whatever is true of a
// cost is true of every higher one.
class CostCheck {
 public:
  CostCheck(std::vector<BoundedTable> tables, const CompiledRules& rules,
            const BoundCostModel& model, double credit_ms)
      : tables_(std::move(tables)),
        speeds_(SpeedsOf(model)),
        num_ranks_(static_cast<std::size_t>(model.num_ranks())),
        credit_ms_(credit_ms),
        by_other_peak_(PositionsDescending(
            tables_.size(), [&](std::size_t i) { return tables_[i].some_ranks_peak_ms; })),
        takes_every_rank_(tables_.size()),
        total_ms_(tables_.size()) {
    FindRankSets(rules, model);
  }

  // What is in the way of a lower cost; no table: all of them together.
  struct Obstacle {
    std::optional<std::size_t> table;  // in `tables`
    double shard_ms = 0;
    double every_rank_ms = 0;  // beside the shard
    int every_rank_tables = 0;
  };

  // The smallest cost that they can be on the ranks at.
  double SmallestCost() {
    double low_ms = 0;
    for (std::size_t i = 0; i < tables_.size(); ++i) {
      const double peak_ms = tables_[i].least_peak_ms();
      if (peak_ms > low_ms) obstacle_ = {i, peak_ms};
      low_ms = std::max(low_ms, peak_ms);
    }
    low_ms /= speeds_.fastest;
    if (!Fits(low_ms)) {
      double high_ms = 2 * low_ms;
      while (!Fits(high_ms)) {
        low_ms = high_ms;
        high_ms *= 2;
      }
      while (high_ms - low_ms > kPrecision * high_ms) {
        const double cost_ms = low_ms + (high_ms - low_ms) / 2;
        (Fits(cost_ms) ? high_ms : low_ms) = cost_ms;
      }
      FindObstacle(low_ms, high_ms);
    }
    return low_ms;
  }

  // Below the smallest cost.
  const Obstacle& obstacle() const { return obstacle_; }

 private:
  // Places, ranks or hosts, and tables each of which has one where every rank pays its smallest peak.
  struct Places {
    std::size_t count = 0;
    std::vector<std::size_t> tables;  // largest smallest peak first
  };

  // Ranks that some tables have to themselves as their only ones.
  struct RankSetLoad {
    double ranks = 0;  // of compute_scale 1 that get through as much
    Places of_ranks;   // all tables that may be on no other ranks
    Places of_hosts;   // of those, which are on all ranks of a host where they are on any
  };

  void FindRankSets(const CompiledRules& rules, const BoundCostModel& model) {
    const auto ranks_of = [&](std::size_t i) { return rules.of(tables_[i].table).ranks.get(); };
    std::vector<const RankSet*> sets = {nullptr};  // first that of all ranks
    for (std::size_t i = 0; i < tables_.size() && sets.size() < kMaxRankSets; ++i) {
      const RankSet* of = ranks_of(i);
      if (!of->all() && std::ranges::find(sets, of) == sets.end()) sets.push_back(of);
    }
    const std::vector<std::size_t> by_peak = PositionsDescending(
        tables_.size(), [&](std::size_t i) { return tables_[i].least_peak_ms(); });
    constexpr TypeSet kOfHosts{ShardingType::kTableRowWise, ShardingType::kGridShard};
    for (const RankSet* set : sets) {
      RankSetLoad& load = sets_.emplace_back();
      std::set<const RankSet*> within;
      for (const RankSet* other : sets) {
        if (set == nullptr || other == nullptr) continue;
        const auto& ranks = other->ranks();
        if (std::ranges::all_of(ranks, [&](int r) { return set->contains(r); })) {
          within.insert(other);
        }
      }
      for (std::size_t r = 0; r < num_ranks_; ++r) {
        if (set != nullptr && !set->contains(static_cast<int>(r))) continue;
        load.ranks += SpeedOf(model, r);
        ++load.of_ranks.count;
      }
      load.of_hosts.count = set == nullptr ? rules.hosts().size() : set->whole_hosts().size();
      for (const std::size_t i : by_peak) {
        if (set != nullptr && !within.contains(ranks_of(i))) continue;
        load.of_ranks.tables.push_back(i);
        const TypeSet types = rules.of(tables_[i].table).types;
        if ((types & kOfHosts) == types) load.of_hosts.tables.push_back(i);
      }
    }
  }

  bool Fits(double cost_ms) {
    const double room_ms = cost_ms * speeds_.fastest;
    too_large_.reset();
    // What every rank holds. A table that has no room beside that on some ranks alone is on all.
    double held_ms = 0;
    takes_every_rank_.assign(takes_every_rank_.size(), false);
    for (const std::size_t i : by_other_peak_) {
      if (held_ms + tables_[i].some_ranks_peak_ms <= room_ms) break;
      held_ms += tables_[i].every_rank_ms;
      takes_every_rank_[i] = true;
    }
    double total_ms = 0;
    double priced_ms = -credit_ms_;
    for (std::size_t i = 0; i < tables_.size(); ++i) {
      const BoundedTable& of = tables_[i];
      const double own_ms = takes_every_rank_[i] ? of.every_rank_ms : 0;
      const double peak_ms = room_ms - (held_ms - own_ms);
      if (of.least_peak_ms() > peak_ms) {
        too_large_ = i;
        return false;
      }
      total_ms_[i] = TotalWithin(of.floors, peak_ms);
      total_ms += total_ms_[i];
      if (!of.priced_floors.empty()) priced_ms += TotalWithin(of.priced_floors, peak_ms);
    }
    if (std::max(total_ms, priced_ms) > speeds_.ranks * cost_ms) return false;
    for (std::size_t s = 0; s < sets_.size(); ++s) {
      const RankSetLoad& set = sets_[s];
      const std::vector<std::size_t>& tables = set.of_ranks.tables;
      if (s > 0) {
        double of_set_ms = held_ms * static_cast<double>(set.of_ranks.count);
        for (const std::size_t i : tables) of_set_ms += total_ms_[i];
        if (of_set_ms > set.ranks * cost_ms) return false;
      }
      if (IsCrowded(set.of_ranks, room_ms - held_ms) ||
          IsCrowded(set.of_hosts, room_ms - held_ms)) {
        return false;
      }
    }
    return true;
  }

  // At the highest cost at which they do not fit, and the lowest at which they do. Where a table has
  // no room beside what every rank holds, it is counted as part of that, and others after it: the
  // first one is the obstacle.
  void FindObstacle(double low_ms, double high_ms) {
    Fits(high_ms);
    const std::vector<bool> on_every_rank = takes_every_rank_;
    Fits(low_ms);
    const auto pushed = std::ranges::find_if(
        by_other_peak_, [&](std::size_t i) { return takes_every_rank_[i] && !on_every_rank[i]; });
    obstacle_ = {};
    if (pushed != by_other_peak_.end()) {
      obstacle_ = {*pushed, tables_[*pushed].some_ranks_peak_ms};
    } else if (too_large_) {
      obstacle_ = {too_large_, tables_[*too_large_].least_peak_ms()};
    } else {
      return;
    }
    for (std::size_t i = 0; i < tables_.size(); ++i) {
      if (!on_every_rank[i] || i == *obstacle_.table) continue;
      obstacle_.every_rank_ms += tables_[i].every_rank_ms;
      ++obstacle_.every_rank_tables;
    }
  }

  // Whether places are too few by the pigeonhole principle: of k x count + 1 tables some place has
  // k + 1.
  bool IsCrowded(const Places& places, double room_ms) const {
    if (places.count == 0 || places.tables.size() <= places.count) return false;
    std::size_t counted = 0;
    for (const std::size_t i : places.tables) {
      if (takes_every_rank_[i]) continue;  // is part of what every rank holds
      const std::size_t most_of_a_place = counted / places.count + 1;
      if (counted % places.count == 0 &&
          static_cast<double>(most_of_a_place) * tables_[i].least_peak_ms() > room_ms) {
        return true;
      }
      ++counted;
    }
    return false;
  }

  const std::vector<BoundedTable> tables_;
  const Speeds speeds_;
  const std::size_t num_ranks_;
  const double credit_ms_;  // taken off the priced sum
  const std::vector<std::size_t>
      by_other_peak_;  // positions in tables_, largest some_ranks_peak_ms first
  std::vector<RankSetLoad> sets_;
  // These hold at the cost that is being looked at.
  std::vector<bool> takes_every_rank_;
  std::vector<double> total_ms_;
  std::optional<std::size_t> too_large_;  // for what is beside it
  Obstacle obstacle_;
};

LowerBound BoundOfFloors(const PlanRequest& request, const CompiledRules& rules,
                         const BoundCostModel& model, double row_capacity_bytes) {
  const MemoryChoices choices = MemoryChoicesOf(request, rules, model);
  // A batch's scope is that of any other, whether memory is short in it or not.
  const bool counts_memory = rules.has_off_device();
  const double price = counts_memory ? PriceOfMemory(choices, row_capacity_bytes) : 0;
  std::vector<BoundedTable> tables;
  for (const TableChoices& of : choices.tables) {
    const auto floors_at = [&](double ms_per_byte) {
      return FloorsAtPrice(of, choices.caches, ms_per_byte, rules.num_ranks());
    };
    tables.push_back({of.table, floors_at(0),
                      price > 0 ? floors_at(price) : std::vector<CostFloor>{}, of.every_rank_ms,
                      of.some_ranks_peak_ms});
  }
  std::string scope = fmt::format(
      "all plans of the allowed sharding types on the allowed ranks{}, even where shards that fit "
      "a device each break {} or constraints on several tables",
      counts_memory ? " whose tables fit into the memory of all devices together, with offload and "
                      "key_value where rules list them"
                    : "",
      counts_memory ? "the limits of single devices together" : "memory limits together");
  if (request.has_unpooled_tables()) scope += ", with TorchRec's blocks of unpooled tables";
  CostCheck check(tables, rules, model, price * row_capacity_bytes);
  LowerBound bound = {check.SmallestCost(), BoundKind::kCertified, std::move(scope)};
  const CostCheck::Obstacle& obstacle = check.obstacle();
  if (obstacle.table) {
    CostLimit& limit = bound.limit.emplace();
    limit.table = TableNames(request.tables).ReferenceTo(tables[*obstacle.table].table);
    limit.shard_ms = obstacle.shard_ms;
    limit.every_rank_ms = obstacle.every_rank_ms;
    limit.every_rank_tables = obstacle.every_rank_tables;
  }
  return bound;
}

// What all ranks hold together with each table in one shard, or, where its rules leave it no type
// with all rows on one rank, in the fewest shards of a type that they do.
struct SpreadTables {
  SpreadTables(const PlanRequest& request, const CompiledRules& rules, const BoundCostModel& model)
      : phi_sum(static_cast<std::size_t>(model.representation_width())) {
    std::vector<ShardFeatures> shards;
    std::vector<double> counts;
    for (std::size_t t = 0; t < request.tables.size(); ++t) {
      const Table& table = request.tables[t];
      const auto [layout, count] = LayoutOf(rules, static_cast<int>(t));
      counts.push_back(count);
      shards.push_back(FeaturesOf(
          table, layout, (table.num_embeddings + layout.row_shards - 1) / layout.row_shards,
          table.embedding_dim));
    }
    std::vector<float> phi(shards.size() * phi_sum.size());
    std::vector<CommLoad> loads(shards.size());
    if (!shards.empty()) model.Represent(shards, phi, loads);
    for (std::size_t i = 0; i < phi.size(); ++i) {
      phi_sum[i % phi_sum.size()] += counts[i / phi_sum.size()] * phi[i];
    }
    for (std::size_t t = 0; t < loads.size(); ++t) {
      forward_load += counts[t] * loads[t].forward;
      backward_load += counts[t] * loads[t].backward;
      kinds |= loads[t].kinds;
    }
  }

  std::vector<double> phi_sum;
  double forward_load = 0;
  double backward_load = 0;
  ShardKinds kinds;

 private:
  // Returns the layout and its number of shards.
  static std::pair<ShardLayout, double> LayoutOf(const CompiledRules& rules, int index) {
    const TableRules& of = rules.of(index);
    // The last one takes least time.
    const Residency residency =
        of.residencies->empty() ? Residency{} : rules.residency(of.residencies->back());
    constexpr TypeSet kOfWholeRows{ShardingType::kTableWise, ShardingType::kColumnWise,
                                   ShardingType::kTableColumnWise};
    if (of.types.empty() || !(of.types & kOfWholeRows).empty()) {
      return {LayoutIn(residency, ShardingType::kTableWise, 1), 1};
    }
    const int of_host = of.ranks->fewest_of_a_whole_host();
    const std::array<std::pair<ShardingType, int>, 5> others = {
        {{ShardingType::kRowWise, rules.num_ranks()},
         {ShardingType::kTableRowWise, of_host},
         {ShardingType::kGridShard, of_host},
         {ShardingType::kRowWiseSubset, 2},
         {ShardingType::kDataParallel, rules.num_ranks()}}};
    const auto [type, shards] = *std::ranges::find_if(
        others, [&](const auto& other) { return of.types.contains(other.first); });
    const int row_shards = CutsRows(type) ? shards : 1;
    return {LayoutIn(residency, type, row_shards), shards};
  }
};

// Whole tables alone, and a convex head: k ranks that hold something pay head(sum / k) on average.
LowerBound BoundOfWholeTables(const PlanRequest& request, const CompiledRules& rules,
                              const BoundCostModel& model) {
  const SpreadTables uncut(request, rules, model);
  const int most_ranks =
      std::min(request.topology.num_ranks(), static_cast<int>(request.tables.size()));
  std::vector<float> sums;
  for (int ranks = 1; ranks <= most_ranks; ++ranks) {
    for (const double sum : uncut.phi_sum) sums.push_back(static_cast<float>(sum / ranks));
  }
  std::vector<ComputeCost> compute(static_cast<std::size_t>(most_ranks));
  model.ComputeCosts(sums, compute);
  const auto least = std::ranges::min_element(compute, {}, &ComputeCost::total_ms);
  float fastest = model.compute_scale(0);
  for (std::size_t r = 1; r < static_cast<std::size_t>(model.num_ranks()); ++r) {
    fastest = std::min(fastest, model.compute_scale(r));
  }
  return {least == compute.end() ? 0 : least->total_ms * fastest, BoundKind::kCertified,
          "all plans of whole tables, the only ones allowed; communication is left out"};
}

// An even spread of whole tables, which hardly any plan is.
LowerBound EvenSpread(const PlanRequest& request, const CompiledRules& rules,
                      const BoundCostModel& model) {
  const int num_ranks = request.topology.num_ranks();
  const std::size_t ranks = static_cast<std::size_t>(num_ranks);
  const SpreadTables spread(request, rules, model);
  std::vector<float> sums;
  std::vector<int> kinds;
  for (int kind = 0; kind < model.num_kinds(); ++kind) {
    for (const double total : spread.phi_sum) sums.push_back(static_cast<float>(total / num_ranks));
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
  const std::vector<float> forward(ranks, static_cast<float>(spread.forward_load / num_ranks));
  const std::vector<float> backward(ranks, static_cast<float>(spread.backward_load / num_ranks));
  PlacementPrices prices;
  PricePlacements(model, compute_ms, forward, backward, prices, {&spread.kinds, 1});
  return {prices.cost_ms.front() + model.fixed_rank_ms(), BoundKind::kReference,
          "no bound: what tables, whole where they may be, would cost if all ranks shared them "
          "evenly; plans may cost less"};
}

// Whether no table, whole and alone on a rank, costs less with rows off the device: with no cache, or
// with the smallest and the largest one. The price of a shard grows or falls with its cache, and a
// kernel that is dearer for one shard is for every other (README of this folder).
bool FusedIsCheapest(const PlanRequest& request, const CompiledRules& rules,
                     const BoundCostModel& model) {
  if (!rules.has_off_device()) return true;
  std::vector<Residency> residencies = {Residency{}};
  for (const KernelTraits& of : kKernelTraits) {
    const bool is_asked = !of.only_where_listed ||
                          std::ranges::find(rules.residencies(), of.kernel, &Residency::kernel) !=
                              rules.residencies().end();
    if (of.tier == MemoryTier::kDevice || !is_asked) continue;
    residencies.push_back({of.kernel, of.has_cache ? 1e-6 : 0});
    if (of.has_cache) residencies.push_back({of.kernel, 1});
  }
  ShardPricer pricer(model);
  for (const Table& table : request.tables) {
    const std::vector<ShardFeatures> shards = Mapped(residencies, [&](const Residency& residency) {
      return FeaturesOf(table, LayoutIn(residency, ShardingType::kTableWise, 1),
                        table.num_embeddings, table.embedding_dim);
    });
    const std::span<const double> prices = pricer.Price(shards);
    if (std::any_of(prices.begin() + 1, prices.end(),
                    [&](double price) { return price < prices.front(); })) {
      return false;
    }
  }
  return true;
}

bool OnlyWholeTables(const CompiledRules& rules) {
  return std::ranges::all_of(rules.tables(), [](const TableRules& table) {
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
    return BoundOfWholeTables(request, rules, model);
  }
  return EvenSpread(request, rules, model);
}

}  // namespace neuroshard
