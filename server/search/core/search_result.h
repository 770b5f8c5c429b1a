// The plan that a search returns, its cost and how it was found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/domain/plan.h"
#include "common/domain/plan_cost.h"
#include "common/domain/plan_request.h"

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

// A plan's cost, with what its moves cost, and what it has of a measure.
struct TradePoint {
  double cost_ms = 0;
  double value = 0;

  bool operator==(const TradePoint&) const = default;
};

// What a goal after the cost costs: without it, with half of the cost's tolerance, with all of it.
struct GoalTrade {
  PlanMeasure measure = PlanMeasure::kMaxMemory;
  std::vector<TradePoint> points;

  bool operator==(const GoalTrade&) const = default;
};

struct SearchResult {
  Plan plan;      // legal: CheckPlan finds nothing; tables in the order of the request
  PlanCost cost;  // exactly what PricePlan says about `plan`
  SearchStatistics statistics;
  std::vector<GoalTrade> trades = {};  // by goal after the cost, of those that there was time for

  bool operator==(const SearchResult&) const = default;
};

}  // namespace neuroshard
