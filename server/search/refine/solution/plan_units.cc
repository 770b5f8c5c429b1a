#include "server/search/refine/solution/plan_units.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <tuple>
#include <utility>

#include "common/domain/table_names.h"

namespace neuroshard {
namespace {

// A unit of a legal table plan, whose shards [begin, end) it is made of.
Unit UnitOf(const TablePlan& plan, std::size_t begin, std::size_t end, Solution& solution) {
  Unit unit;
  unit.type = plan.sharding_type;
  unit.residency = solution.rules().PositionOf(ResidencyOf(plan));
  unit.cols = plan.shards[begin].cols;
  const int first_rank = plan.shards[begin].rank;
  if (unit.spread() == Spread::kRank) unit.place = first_rank;
  if (unit.spread() == Spread::kOneHost) unit.place = solution.host_of(first_rank);
  if (unit.spread() == Spread::kSubset) {
    std::vector<int> ranks;
    for (std::size_t s = begin; s < end; ++s) ranks.push_back(plan.shards[s].rank);
    unit.place = solution.AddSubset(std::move(ranks));
  }
  return unit;
}

}  // namespace

std::vector<Unit> UnitsOf(const PlanRequest& request, const TableLayouts& layouts, const Plan& plan,
                          ShardTable& shard_table, Solution& solution) {
  const std::vector<int> table_of = TablesOf(plan, request.tables);
  std::vector<Unit> units;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const TablePlan& table = plan.tables[t];
    const std::size_t first_unit = units.size();
    for (std::size_t begin = 0; begin < table.shards.size();) {
      std::size_t end = begin + 1;
      const Shard& first = table.shards[begin];
      while (end < table.shards.size() && table.shards[end].col_offset == first.col_offset) ++end;
      Unit unit = UnitOf(table, begin, end, solution);
      unit.table = table_of[t];
      unit.shards.count = static_cast<int>(end - begin);
      units.push_back(unit);
      begin = end;
    }
    const int blocks = static_cast<int>(units.size() - first_unit);
    for (std::size_t u = first_unit; u < units.size(); ++u) {
      Unit& unit = units[u];
      if (solution.fixed(unit.table) == nullptr) {
        std::optional<ShardingType> type;
        if (unit.spread() == Spread::kRank) type = layouts.OnRanks(unit.table, blocks);
        if (unit.spread() == Spread::kOneHost) type = layouts.OnHosts(unit.table, blocks);
        unit.type = type.value_or(unit.type);
      }
      unit.shards =
          shard_table.Shards(unit.table, unit.type, unit.cols, unit.shards.count, unit.residency);
    }
  }
  shard_table.PredictNew();
  return units;
}

Plan MakePlan(const PlanRequest& request, const Solution& solution, std::span<const Unit> all) {
  Plan plan = UnplacedTables(request);
  std::vector<std::vector<const Unit*>> units_of_table(request.tables.size());
  for (const Unit& unit : all) {
    units_of_table[static_cast<std::size_t>(unit.table)].push_back(&unit);
  }
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    std::vector<const Unit*>& units = units_of_table[t];
    std::ranges::sort(units, [](const Unit* a, const Unit* b) {
      const auto key = [](const Unit* u) {
        return std::make_tuple(u->cols % kColumnAlignment != 0, u->place, u->cols);
      };
      return key(a) < key(b);
    });
    TablePlan& table_plan = plan.tables[t];
    if (const TablePlan* const kept = solution.fixed(static_cast<int>(t)); kept != nullptr) {
      table_plan = *kept;
      continue;
    }
    if (solution.migration_terms()) units = solution.migration_terms()->Ordered(units);
    table_plan.sharding_type = units.front()->type;
    const Residency& residency = solution.rules().residency(units.front()->residency);
    table_plan.compute_kernel = LayoutIn(residency, table_plan.sharding_type, 1).kernel;
    table_plan.cache_load_factor = residency.cache_load_factor;
    std::int64_t col_offset = 0;
    for (const Unit* unit : units) {
      const Block columns = {col_offset, unit->cols};
      const std::vector<Shard> shards =
          LayOut(request.tables[t], unit->type, {&columns, 1}, solution.PlacesOf(*unit),
                 solution.rules().hosts(), solution.rules().row_cut(static_cast<int>(t)));
      table_plan.shards.insert(table_plan.shards.end(), shards.begin(), shards.end());
      col_offset += unit->cols;
    }
  }
  return plan;
}

}  // namespace neuroshard
