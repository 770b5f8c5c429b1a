#include "server/search/neuroshard/split_sequence.h"

#include <algorithm>
#include <utility>

#include "common/base/positions.h"

namespace neuroshard {

SplitSequence MakeSequence(std::vector<Piece> pieces, ShardTable& shard_table) {
  SplitSequence sequence;
  sequence.pieces = std::move(pieces);
  sequence.shards.reserve(sequence.pieces.size());
  for (const Piece& piece : sequence.pieces) {
    sequence.shards.push_back(shard_table.Whole(piece.table, piece.cols));
  }
  return sequence;
}

SplitSequence Halve(const SplitSequence& sequence, std::size_t index, ShardTable& shard_table) {
  SplitSequence child = sequence;
  Piece& first = child.pieces[index];
  first.cols /= 2;
  const Piece second{first.table, first.col_offset + first.cols, first.cols};
  const int shard = shard_table.Whole(first.table, first.cols);
  child.shards[index] = shard;
  child.pieces.push_back(second);
  child.shards.push_back(shard);
  return child;
}

std::vector<std::size_t> SplitCandidates(const SplitSequence& sequence, int num_candidates,
                                         const ShardTable& shard_table) {
  const std::size_t num_pieces = sequence.pieces.size();
  const std::size_t kept = std::min(num_pieces, static_cast<std::size_t>(num_candidates));
  std::vector<std::size_t> candidates;
  const auto add_largest = [&](const auto& key) {
    const std::vector<std::size_t> order =
        PositionsDescending(num_pieces, [&](std::size_t i) { return key(sequence.shards[i]); });
    candidates.insert(candidates.end(), order.begin(),
                      order.begin() + static_cast<std::ptrdiff_t>(kept));
  };
  add_largest([&](int shard) { return shard_table.bytes(shard); });
  add_largest([&](int shard) { return shard_table.shard_cost_ms(shard); });
  SortUnique(candidates);
  std::erase_if(candidates, [&](std::size_t i) { return !CanHalve(sequence.pieces[i]); });
  return candidates;
}

}  // namespace neuroshard
