// Workbench: what one local search works on.
#pragma once

#include "common/domain/plan.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/core/fixed_tables.h"
#include "server/search/core/search_context.h"
#include "server/search/core/shard_table.h"
#include "server/search/core/table_layouts.h"
#include "server/search/refine/initial/initial_solutions.h"
#include "server/search/refine/objective/move_pricer.h"
#include "server/search/refine/objective/rank_costs.h"
#include "server/search/refine/solution/solution.h"

namespace neuroshard {

// A solution with everything that is remembered about its request. For one thread, and one search
// at a time.
struct Workbench {
  // All must outlive it.
  Workbench(SearchContext& search_context, const CompiledRules& compiled_rules,
            const TableLayouts& table_layouts);

  // Makes a plan whose tables are legal by themselves the solution, and prices it.
  void Load(const Plan& plan);

  // From now on these tables of a plan in place stay. Clears the solution.
  void Fix(const FixedTables& fixed);
  // From now on moves cost what the migration says, and keep to its budget. Clears the solution.
  void CountMoves();

  SearchContext& context;
  const CompiledRules& rules;
  const TableLayouts& layouts;
  ShardTable shard_table;
  Solution solution;
  RankCosts rank_costs;
  MovePricer pricer;
  InitialSolutions initial;
};

}  // namespace neuroshard
