// Cost floors: the least that a table costs, however it is laid out.
#pragma once

#include <vector>

#include "common/domain/plan_request.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/evaluate/shard_price.h"

namespace neuroshard {

// The floor of one layout of a table, or of several layouts with the same floor.
struct CostFloor {
  double peak_ms = 0;   // some rank pays at least that for the table
  double total_ms = 0;  // all ranks together pay at least that for it

  bool operator==(const CostFloor&) const = default;
};

// Every layout that the rules leave to table `index` costs at least as much as one of these, in
// both respects, under a model with additive_compute, separable_comm and monotone_shard_costs.
// Ascending by peak, descending by total; empty where the rules leave nothing. `pricer` is of this
// request and such a model. O(log(columns) + columns / 4 up to 256) shards are priced, and one of
// each size of row blocks in proportion. Why this is so: README of this folder.
std::vector<CostFloor> CostFloorsOf(const PlanRequest& request, const CompiledRules& rules,
                                    int index, ShardPricer& pricer);

}  // namespace neuroshard
