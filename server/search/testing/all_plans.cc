#include "server/search/testing/all_plans.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>

#include "server/evaluate/check_plan.h"
#include "server/evaluate/migration_report.h"
#include "server/evaluate/price_plan.h"
#include "server/evaluate/testing/lay_out_table.h"

namespace neuroshard {
namespace {

using Blocks = std::vector<Block>;

// Calls `visit` with every sequence of `length` numbers in [first, first + count).
void ForEachSequence(int first, int count, std::size_t length, std::vector<int>& sequence,
                     const std::function<void()>& visit) {
  if (sequence.size() == length) return visit();
  for (int i = first; i < first + count; ++i) {
    sequence.push_back(i);
    ForEachSequence(first, count, length, sequence, visit);
    sequence.pop_back();
  }
}

std::vector<Blocks> AllColumnCuts(std::int64_t dim) {
  std::vector<Blocks> all = {{{0, dim}}};
  for (std::int64_t cut = kColumnAlignment; cut < dim; cut += kColumnAlignment) {
    for (std::size_t i = all.size(); i-- > 0;) {
      Blocks blocks = all[i];
      blocks.back().size = cut - blocks.back().offset;
      blocks.push_back({cut, dim - cut});
      all.push_back(std::move(blocks));
    }
  }
  return all;
}

// With the demands that concern this table by itself, so that most layouts are out before they are
// combined.
PlanRequest Alone(const PlanRequest& request, int table) {
  PlanRequest alone = request;
  alone.tables = {request.tables[static_cast<std::size_t>(table)]};
  alone.constraints.colocate.clear();
  alone.constraints.separate.clear();
  std::erase_if(alone.constraints.tables, [&](const TableRule& rule) {
    return !std::binary_search(rule.tables.begin(), rule.tables.end(), table);
  });
  for (TableRule& rule : alone.constraints.tables) rule.tables = {0};
  return alone;
}

Plan EmptyPlan(const PlanRequest& request) {
  Plan plan;
  plan.world_size = request.topology.num_ranks();
  plan.local_world_size = request.topology.ranks_per_host();
  return plan;
}

PlanRequest WithDefaultTypes(PlanRequest request, TypeSet default_types) {
  if (!request.constraints.sharding_types.empty()) return request;
  for (const auto& word : kWords<ShardingType>) {
    if (default_types.contains(word.value)) {
      request.constraints.sharding_types.push_back(word.value);
    }
  }
  return request;
}

// Calls `visit` with every legal plan until it says false.
void ForEachLegalPlan(const PlanRequest& request, const std::function<bool(const Plan&)>& visit) {
  std::vector<std::vector<TablePlan>> layouts;
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    const int table = static_cast<int>(t);
    const PlanRequest alone = Alone(request, table);
    std::vector<TablePlan> possible = AllTablePlans(request, table);
    std::erase_if(possible, [&](const TablePlan& table_plan) {
      Plan plan = EmptyPlan(request);
      plan.tables = {table_plan};
      return !CheckPlan(alone, plan).empty();
    });
    layouts.push_back(std::move(possible));
  }
  Plan plan = EmptyPlan(request);
  const std::function<bool()> extend = [&] {
    if (plan.tables.size() == layouts.size()) {
      return !CheckPlan(request, plan).empty() || visit(plan);
    }
    for (const TablePlan& layout : layouts[plan.tables.size()]) {
      plan.tables.push_back(layout);
      const bool go_on = extend();
      plan.tables.pop_back();
      if (!go_on) return false;
    }
    return true;
  };
  extend();
}

}  // namespace

std::vector<TablePlan> AllTablePlans(const PlanRequest& request, int table) {
  const Table& of = request.tables[static_cast<std::size_t>(table)];
  const std::vector<HostRanks> hosts = request.topology.hosts();
  const int num_ranks = request.topology.num_ranks();
  const RowCut row_cut = RowCuts(request).of(table);
  const std::vector<Blocks> cuts = AllColumnCuts(of.embedding_dim);
  const Blocks& whole = cuts.front();
  std::vector<TablePlan> all;
  std::vector<int> places;
  const auto add = [&](ShardingType type, const Blocks& columns) {
    all.push_back(LayOutTable(of, type, columns, places, hosts, row_cut));
  };
  add(ShardingType::kRowWise, whole);
  add(ShardingType::kDataParallel, whole);
  for (int rank = 0; rank < num_ranks; ++rank) {
    places = {rank};
    add(ShardingType::kTableWise, whole);
  }
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    places = {static_cast<int>(host)};
    add(ShardingType::kTableRowWise, whole);
  }
  for (unsigned subset = 0; subset < 1U << num_ranks; ++subset) {
    places.clear();
    for (int rank = 0; rank < num_ranks; ++rank) {
      if ((subset >> rank & 1) != 0) places.push_back(rank);
    }
    if (places.size() >= 2) add(ShardingType::kRowWiseSubset, whole);
  }
  places.clear();
  for (const Blocks& columns : cuts) {
    ForEachSequence(0, num_ranks, columns.size(), places,
                    [&] { add(ShardingType::kColumnWise, columns); });
    for (const HostRanks& host : hosts) {
      ForEachSequence(host.first, host.count, columns.size(), places,
                      [&] { add(ShardingType::kTableColumnWise, columns); });
    }
    ForEachSequence(0, static_cast<int>(hosts.size()), columns.size(), places,
                    [&] { add(ShardingType::kGridShard, columns); });
  }
  return all;
}

BestOfAllPlans BestOfAll(const PlanRequest& asked, TypeSet default_types,
                         const BoundCostModel& model) {
  const PlanRequest request = WithDefaultTypes(asked, default_types);
  BestOfAllPlans best;
  ForEachLegalPlan(request, [&](const Plan& plan) {
    best.feasible = true;
    const StatusOr<PlanCost> cost = PricePlan(request, plan, model);
    if (!cost.ok()) return true;
    double objective = cost->embedding_cost_ms;
    best.cost_ms = std::min(best.cost_ms, objective);
    if (request.migration.has_value()) {
      objective += request.migration->price_ms_per_gib *
                   static_cast<double>(ReportMigration(request, plan).moved_bytes) / (1 << 30);
    }
    if (objective < best.objective_ms) {
      best.objective_ms = objective;
      best.plan = plan;
    }
    return true;
  });
  return best;
}

bool AnyPlanIsLegal(const PlanRequest& asked, TypeSet default_types) {
  bool any = false;
  ForEachLegalPlan(WithDefaultTypes(asked, default_types), [&](const Plan&) {
    any = true;
    return false;
  });
  return any;
}

}  // namespace neuroshard
