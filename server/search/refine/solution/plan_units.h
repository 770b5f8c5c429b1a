// Conversion between plans, the currency of strategies, and the units that local search moves.
#pragma once

#include <span>
#include <vector>

#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "server/search/core/shard_table.h"
#include "server/search/core/table_layouts.h"
#include "server/search/refine/solution/solution.h"

namespace neuroshard {

// The units of a plan whose tables are legal; may lack tables. Predicts its shards. Types that
// `layouts` takes as one become that one, but for tables that the solution keeps.
std::vector<Unit> UnitsOf(const PlanRequest& request, const TableLayouts& layouts, const Plan& plan,
                          ShardTable& shard_table, Solution& solution);

// `units` of all tables, whose subsets `solution` knows, as a plan: tables in the request's order,
// columns handed to a table's units in the order of their ranks or hosts, a ragged end last.
Plan MakePlan(const PlanRequest& request, const Solution& solution, std::span<const Unit> units);

}  // namespace neuroshard
