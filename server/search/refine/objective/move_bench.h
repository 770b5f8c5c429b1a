// What moves of a solution are found and priced with.
#pragma once

#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/core/search_context.h"
#include "server/search/core/shard_table.h"
#include "server/search/core/table_layouts.h"
#include "server/search/refine/objective/move_pricer.h"
#include "server/search/refine/objective/rank_costs.h"
#include "server/search/refine/solution/solution.h"

namespace neuroshard {

// A solution with everything that is remembered about its request. For one thread.
struct MoveBench {
  // All must outlive it.
  MoveBench(SearchContext& search_context, const CompiledRules& compiled_rules,
            const TableLayouts& table_layouts)
      : context(search_context),
        rules(compiled_rules),
        layouts(table_layouts),
        shard_table(context, rules),
        solution(context.request(), rules, shard_table),
        rank_costs(context, shard_table, solution),
        pricer(context, shard_table, rank_costs, solution) {}
  MoveBench(const MoveBench&) = delete;  // its parts refer to each other
  MoveBench& operator=(const MoveBench&) = delete;

  SearchContext& context;
  const CompiledRules& rules;
  const TableLayouts& layouts;
  ShardTable shard_table;
  Solution solution;
  RankCosts rank_costs;
  MovePricer pricer;
};

// A bench's parts by the names of members, for the classes that work on it.
struct MoveTools {
  explicit MoveTools(MoveBench& bench)
      : context_(bench.context),
        rules_(bench.rules),
        layouts_(bench.layouts),
        shard_table_(bench.shard_table),
        solution_(bench.solution),
        rank_costs_(bench.rank_costs),
        pricer_(bench.pricer) {}

  SearchContext& context_;
  const CompiledRules& rules_;
  const TableLayouts& layouts_;
  ShardTable& shard_table_;
  Solution& solution_;
  RankCosts& rank_costs_;
  MovePricer& pricer_;
};

}  // namespace neuroshard
