// Memory stashing: which tables' weights a trainer keeps in host memory while dense layers run.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "common/domain/plan.h"
#include "common/domain/plan_cost.h"
#include "common/domain/plan_report.h"
#include "common/domain/plan_request.h"

namespace neuroshard {

// The tables in the order in which they are stashed for others to stay: fewest ids a byte first, which
// cost least where they are cut to be spread.
std::vector<int> StashOrder(const PlanRequest& request);

// What is stashed under a plan.
struct Stash {
  PlanRequest request;         // in which all tables that are stashed have stash_weights
  std::int64_t max_bytes = 0;  // of the rank that stashes most
};

// Returns the tables that ask for it and, with memory.dense_bytes, some of the first of the others in
// StashOrder, which leave every device room for these bytes; of any set of first ones that would do,
// its rank that stashes most stashes no less. None of them can be left out, nor exchanged for another
// on a rank to make that one stash less; not always the least there is. `plan`: a legal one.
// FAILED_PRECONDITION, quoting the bytes: what cannot be stashed on some rank leaves too few, or a
// host has too little memory for the copies. O(shards), and O(n^2) a step for n tables on a rank.
StatusOr<Stash> ChooseStash(const PlanRequest& request, const Plan& plan);

// `request`: Stash::request. `cost`: what PricePlan says under it.
StashReport ReportStash(const PlanRequest& request, const PlanCost& cost);

}  // namespace neuroshard
