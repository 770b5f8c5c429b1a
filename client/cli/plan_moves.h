// What travels from the plan in place to a new one, as a file and in a sentence.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/domain/resharding.h"

namespace neuroshard {

// A table of which shards are made anew, and why DistributedModelParallel.reshard of TorchRec 1.9.2
// cannot move it in a running job; empty: it can.
struct TableMove {
  int table = 0;  // of the request
  std::string torchrec_fault;
};

struct PlanMoves {
  Resharding resharding;
  std::vector<TableMove> tables;  // ascending
};

// As Reshard.
StatusOr<PlanMoves> MovesOf(const PlanRequest& request, const Plan& plan);

// {"format": "neuroshard-moves/1", "order": "fits", "buffer_bytes", "cycle": [{"rank", "wants",
//  "holds", "next_rank"}], "bytes": {"intra_host", "inter_host", "buffer", "outside"}, "ranks":
//  [{"rank", "peak_bytes", "capacity_bytes"}], "tables": [{"table", "module", "name",
//  "torchrec_live", "reason"}],
//  "freed_first": [SHARD], "steps": [{"to_buffer": [SHARD], "make": [{SHARD, "parts": [{"from_rank",
//  "link", "row_offset", "rows", "col_offset", "cols", "weights_bytes", "optimizer_bytes"}]}],
//  "free": [SHARD]}]}, where SHARD is {"table", "rank", "row_offset", "rows", "col_offset", "cols"};
// what each means: common/domain/resharding.h.
std::string MovesAsJson(const PlanRequest& request, const PlanMoves& moves);

// What travels, in how many steps, what TorchRec can move alive, and the cycle where there is one.
// With line ends.
std::string MovesAsText(const PlanRequest& request, const PlanMoves& moves);

}  // namespace neuroshard
