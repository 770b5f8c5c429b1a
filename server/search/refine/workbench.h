// Workbench: what one local search works on.
#pragma once

#include "common/domain/plan.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/core/fixed_tables.h"
#include "server/search/core/search_context.h"
#include "server/search/core/table_layouts.h"
#include "server/search/refine/initial/initial_solutions.h"
#include "server/search/refine/objective/move_bench.h"

namespace neuroshard {

// A bench, and where its search may begin. For one thread, and one search at a time.
struct Workbench : MoveBench {
  // All must outlive it.
  Workbench(SearchContext& search_context, const CompiledRules& compiled_rules,
            const TableLayouts& table_layouts)
      : MoveBench(search_context, compiled_rules, table_layouts), initial(*this) {}

  // Makes a plan whose tables are legal by themselves the solution, and prices it.
  void Load(const Plan& plan);

  // From now on these tables of a plan in place stay. Clears the solution.
  void Fix(const FixedTables& fixed);
  // From now on moves cost what the migration says, and keep to its budget. Clears the solution.
  void CountMoves();

  InitialSolutions initial;
};

}  // namespace neuroshard
