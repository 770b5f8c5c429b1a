#include "server/search/refine/workbench.h"

#include <vector>

#include "server/search/refine/solution/plan_units.h"

namespace neuroshard {

Workbench::Workbench(SearchContext& search_context, const CompiledRules& compiled_rules,
                     const TableLayouts& table_layouts)
    : context(search_context),
      rules(compiled_rules),
      layouts(table_layouts),
      shard_table(search_context, compiled_rules),
      solution(search_context.request(), compiled_rules, shard_table),
      rank_costs(search_context, shard_table, solution),
      pricer(search_context, shard_table, rank_costs, solution),
      initial(search_context, compiled_rules, table_layouts, shard_table, solution, pricer) {}

void Workbench::Load(const Plan& plan) {
  const std::vector<Unit> units = UnitsOf(context.request(), layouts, plan, shard_table, solution);
  solution.Clear();
  for (const Unit& unit : units) solution.Add(unit);
  pricer.PriceSolution();
}

void Workbench::Fix(const FixedTables& fixed) {
  solution.Fix(fixed, {});
  Plan plan;
  for (const TablePlan* const table : fixed) {
    if (table != nullptr) plan.tables.push_back(*table);
  }
  solution.Fix(fixed, UnitsOf(context.request(), layouts, plan, shard_table, solution));
}

void Workbench::CountMoves() { solution.CountMoves({context.request(), rules}); }

}  // namespace neuroshard
