#include "server/search/refine/workbench.h"

#include <vector>

#include "server/search/refine/solution/plan_units.h"

namespace neuroshard {

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
