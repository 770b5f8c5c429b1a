// Memory stashing: which tables' weights a trainer keeps in host memory while dense layers run.
#pragma once

#include <cstdint>

#include "common/base/status.h"
#include "common/domain/plan.h"
#include "common/domain/plan_cost.h"
#include "common/domain/plan_report.h"
#include "common/domain/plan_request.h"

namespace neuroshard {

// Returns the request in which all tables that are stashed under the plan have stash_weights: those
// that ask for it and, with memory.dense_bytes, as many others as leave every device room for these
// bytes. The others are a set of which none can be left out, found by dropping and exchanging tables
// on the rank that stashes most, so that this rank stashes little; not always the least there is.
// `plan`: a legal one. FAILED_PRECONDITION, quoting the bytes: what cannot be stashed on some rank
// leaves too few, or a host has too little memory for the copies. O(shards), and O(n^2) a step for n
// tables on a rank.
StatusOr<PlanRequest> WithStash(const PlanRequest& request, const Plan& plan);

// The most that a rank stashes under a legal plan. `request`: WithStash's. O(shards).
std::int64_t MaxStashedBytes(const PlanRequest& request, const Plan& plan);

// `request`: WithStash's. `cost`: what PricePlan says under it.
StashReport ReportStash(const PlanRequest& request, const PlanCost& cost);

}  // namespace neuroshard
