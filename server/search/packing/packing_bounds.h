// Packing bounds: proofs that no plan can exist.
#pragma once

#include "common/base/status.h"
#include "common/domain/plan_request.h"
#include "server/search/packing/find_packing.h"

namespace neuroshard {

// FAILED_PRECONDITION when one of these holds, OK when none does (which proves nothing):
// - a table (where columns are cut: its smallest possible piece) is larger than what any rank has
// available;
// - where columns are cut: a table has more columns than all ranks could take, each holding nothing
// else;
// - all tables together need more than all ranks have (cutting columns only adds to what a table
// needs).
// OUT_OF_MEMORY where the weights and their optimizer state exceed the devices' memory, which holds
// for every plan without host memory; otherwise NO_PLAN_FOUND, of plans that cut so.
Status CheckPackingBounds(const PlanRequest& request, Cutting cutting);

}  // namespace neuroshard
