// The moves from the plan in place to a new one, as a file and in a sentence.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/domain/resharding.h"
#include "neuroshard/v1/answers.pb.h"

namespace neuroshard {

// A table of which shards are made anew, and why DistributedModelParallel.reshard of TorchRec 1.9.2
// cannot move it in a running job; empty: it can. A running job keeps its number of ranks, and has
// no buffer: tables that wait for one cannot.
struct TableMove {
  int table = 0;  // of the request
  std::string torchrec_fault;
};

struct PlanMoves {
  Resharding resharding;
  std::vector<TableMove> tables;  // ascending
};

// The moves that take the plan in place to `plan`, in an order that keeps to memory (Reshard).
StatusOr<PlanMoves> MovesOf(const PlanRequest& request, const Plan& plan);

v1::MovesAnswer AnswerOf(const PlanRequest& request, const PlanMoves& moves);

// The moves in a sentence: how many there are, in how many steps, which of them TorchRec can make
// alive and why not the rest, and the cycle where there is one. With line ends.
std::string MovesAsText(const PlanRequest& request, const PlanMoves& moves);

}  // namespace neuroshard
