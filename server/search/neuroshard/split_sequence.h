// A state of the outer search: the tables after some column splits.
#pragma once

#include <cstddef>
#include <vector>

#include "server/search/core/shard_table.h"
#include "server/search/placement/placement.h"

namespace neuroshard {

struct SplitSequence {
  std::vector<Piece> pieces;
  std::vector<int> shards;  // shard_table ids of the pieces
};

SplitSequence MakeSequence(std::vector<Piece> pieces, ShardTable& shard_table);

// Returns the sequence with piece `index` halved: the first half stays in its place, the second one
// is appended (NeuroShard, section 3.3).
SplitSequence Halve(const SplitSequence& sequence, std::size_t index, ShardTable& shard_table);

// Returns the pieces to try for the next split, in ascending order: the `num_candidates` largest by
// bytes and the `num_candidates` costliest by predicted single-table cost (ties: lower index),
// without those that cannot be halved.
std::vector<std::size_t> SplitCandidates(const SplitSequence& sequence, int num_candidates,
                                         const ShardTable& shard_table);

}  // namespace neuroshard
