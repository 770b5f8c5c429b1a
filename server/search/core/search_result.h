// The plan that a search returns, its cost and how it was found.
#pragma once

#include <cstdint>
#include <string>

#include "common/domain/plan.h"
#include "common/domain/plan_cost.h"

namespace neuroshard {

struct SearchStatistics {
  std::string strategy;
  int splits = 0;                    // column cuts in the plan
  std::int64_t plans_evaluated = 0;  // complete placements priced
  std::int64_t compute_evaluations =
      0;                            // single-rank compute costs predicted (rows of ComputeCosts)
  bool time_limit_reached = false;  // stopped before its end; the plan is the best so far

  bool operator==(const SearchStatistics&) const = default;
};

struct SearchResult {
  Plan plan;      // legal: CheckPlan finds nothing
  PlanCost cost;  // exactly what PricePlan says about `plan`
  SearchStatistics statistics;

  bool operator==(const SearchResult&) const = default;
};

}  // namespace neuroshard
