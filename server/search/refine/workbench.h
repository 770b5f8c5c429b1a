// Workbench: what one local search works on.
#pragma once

#include <vector>

#include "common/domain/plan.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/core/fixed_tables.h"
#include "server/search/core/search_context.h"
#include "server/search/core/table_layouts.h"
#include "server/search/refine/initial/initial_solutions.h"
#include "server/search/refine/objective/move_bench.h"
#include "server/search/refine/solution/plan_units.h"

namespace neuroshard {

// A bench, and where its search may begin. For one thread, and one search at a time.
struct Workbench : MoveBench {
  // All must outlive it.
  Workbench(SearchContext& search_context, const CompiledRules& compiled_rules,
            const TableLayouts& table_layouts)
      : MoveBench(search_context, compiled_rules, table_layouts), initial(*this) {}

  // Makes a plan whose tables are legal by themselves the solution, and prices it.
  void Load(const Plan& plan) {
    const std::vector<Unit> units =
        UnitsOf(context.request(), layouts, plan, shard_table, solution);
    solution.Clear();
    for (const Unit& unit : units) solution.Add(unit);
    pricer.PriceSolution();
  }

  // From now on these tables of a plan in place stay. Clears the solution.
  void Fix(const FixedTables& fixed) {
    solution.Fix(fixed, {});
    Plan plan;
    for (const TablePlan* const table : fixed) {
      if (table != nullptr) plan.tables.push_back(*table);
    }
    solution.Fix(fixed, UnitsOf(context.request(), layouts, plan, shard_table, solution));
  }
  // From now on moves cost what the migration says, and keep to its budget. Clears the solution.
  void CountMoves() { solution.CountMoves({context.request(), rules}); }

  InitialSolutions initial;
};

}  // namespace neuroshard
