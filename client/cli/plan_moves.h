// The moves from the plan in place to a new one, as a file and in a sentence.
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/domain/resharding.h"
#include "neuroshard/v1/answers.pb.h"

namespace neuroshard {

// The moves that take the plan in place to `plan`, in an order that keeps to memory (Reshard). A
// table's `reason` is why DistributedModelParallel.reshard of TorchRec 1.9.2 cannot move it in a
// running job. A running job keeps its number of ranks, and has no buffer: tables that wait for one
// cannot.
StatusOr<v1::MovesAnswer> MovesOf(const PlanRequest& request, const Plan& plan);

// The moves in a sentence: how many there are, in how many steps, which of them TorchRec can make
// alive and why not the rest, and the cycle where there is one. With line ends.
std::string MovesAsText(const v1::MovesAnswer& moves);

}  // namespace neuroshard
