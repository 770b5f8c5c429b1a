// Workbench: what moves of a solution are found and priced with.
#pragma once

#include <vector>

#include "common/domain/plan.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/core/fixed_tables.h"
#include "server/search/core/search_context.h"
#include "server/search/core/shard_table.h"
#include "server/search/core/table_layouts.h"
#include "server/search/refine/objective/move_pricer.h"
#include "server/search/refine/solution/plan_units.h"
#include "server/search/refine/solution/solution.h"

namespace neuroshard {

// A solution with everything that is remembered about its request. For one thread.
struct Workbench {
  // All must outlive it.
  Workbench(SearchContext& search_context, const CompiledRules& compiled_rules,
            const TableLayouts& table_layouts)
      : context(search_context),
        rules(compiled_rules),
        layouts(table_layouts),
        shard_table(context, rules),
        solution(context.request(), rules, shard_table),
        pricer(context, shard_table, solution) {}
  Workbench(const Workbench&) = delete;  // its parts refer to each other
  Workbench& operator=(const Workbench&) = delete;

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

  SearchContext& context;
  const CompiledRules& rules;
  const TableLayouts& layouts;
  ShardTable shard_table;
  Solution solution;
  MovePricer pricer;
};

// A bench's parts by the names of members, for the classes that work on it.
struct MoveTools {
  explicit MoveTools(Workbench& bench)
      : context_(bench.context),
        rules_(bench.rules),
        layouts_(bench.layouts),
        shard_table_(bench.shard_table),
        solution_(bench.solution),
        pricer_(bench.pricer) {}

  SearchContext& context_;
  const CompiledRules& rules_;
  const TableLayouts& layouts_;
  ShardTable& shard_table_;
  Solution& solution_;
  MovePricer& pricer_;
};

}  // namespace neuroshard
