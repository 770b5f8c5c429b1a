// What travels from the plan in place to a new one, as a file and in a sentence.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/domain/resharding.h"

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

// As Reshard.
StatusOr<PlanMoves> MovesOf(const PlanRequest& request, const Plan& plan);

// {"format": "neuroshard-moves/1", "order": "fits", "buffer_bytes", "cycle": [{"rank", "wants",
//  "holds", "next_rank", "memory"}], "bytes": {"intra_host", "inter_host", "buffer", "outside",
//  "between_memories"}, "ranks": [{"rank", "peak_bytes", "capacity_bytes"}], "shared_memory":
//  [{"memory", "host", and "rank" where the limit is its own, "peak_bytes", "capacity_bytes"}],
//  "tables": [{"table", "module", "name", "torchrec_live", "reason"}],
//  "freed_first": [SHARD], "steps": [{"to_buffer": [SHARD], "make": [{SHARD, "parts": [{"from_rank",
//  "link", "from_memory", "memory", "row_offset", "rows", "col_offset", "cols", "weights_bytes",
//  "optimizer_bytes"}]}], "free": [SHARD]}]}, where SHARD is {"table", "rank", "row_offset", "rows",
//  "col_offset", "cols"}, and a memory is "device", "host" or "ssd". "between_memories" are bytes of
// parts with link "same_rank" of which from_memory and memory differ; other parts of that link move
// nothing. What each means: common/domain/resharding.h.
std::string MovesAsJson(const PlanRequest& request, const PlanMoves& moves);

// What travels, in how many steps, what TorchRec can move alive and why not the rest, and the cycle
// where there is one.
// With line ends.
std::string MovesAsText(const PlanRequest& request, const PlanMoves& moves);

}  // namespace neuroshard
