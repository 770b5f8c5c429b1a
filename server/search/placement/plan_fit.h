// Plan fit: does a plan fit into memory? For strategies that make plans without looking at it.
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/domain/plan.h"
#include "common/domain/plan_request.h"

namespace neuroshard {

// OK when every rank has room for its shards and the reserve (CheckPlan's rule; an empty rank is
// within any capacity), and every host for what is in its memory. Otherwise FAILED_PRECONDITION "no
// plan was found: `whose` does not fit: ..." with the rank that lacks most: another plan may fit,
// so nothing is proven. `plan` has the tables of the request in the request's order.
Status CheckFits(const PlanRequest& request, const Plan& plan, const std::string& whose);

}  // namespace neuroshard
