// Moves: the neighbours of a solution, as units that are removed and units that are added instead;
// and lists of the most promising ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "server/search/refine/solution/unit.h"

namespace neuroshard {

// One neighbour: ids of units to remove and units to add, in the list that it is of.
struct Move {
  double estimate_ms = 0;  // what it is thought to lead to; lower is better
  std::uint32_t order = 0;
  std::uint32_t removed_begin = 0;
  std::uint32_t removed_count = 0;
  std::uint32_t added_begin = 0;
  std::uint32_t added_count = 0;
};

// The `most` moves with the lowest estimates of all that were added (ties: added first). Add takes
// O(log most) and a copy of the units for a move that is kept, O(1) for others. Memory is kept when
// the list is cleared. For one thread.
class MoveList {
 public:
  explicit MoveList(std::size_t most) : most_(most) {}

  void Clear();
  // Whether a move with this estimate would be kept: worth putting together.
  bool Wants(double estimate_ms) const { return estimate_ms < limit_ms(); }
  // Estimates from here on are not wanted.
  double limit_ms() const {
    return heap_.size() < most_ ? std::numeric_limits<double>::infinity()
                                : heap_.front().estimate_ms;
  }
  void Add(double estimate_ms, std::span<const int> removed, std::span<const Unit> added);

  bool empty() const { return heap_.empty(); }
  // In ascending order of estimates; the list must not be added to before the next Clear.
  std::span<const Move> Sorted();
  std::span<const int> removed(const Move& move) const {
    return std::span(removed_).subspan(move.removed_begin, move.removed_count);
  }
  std::span<const Unit> added(const Move& move) const {
    return std::span(added_).subspan(move.added_begin, move.added_count);
  }

 private:
  const std::size_t most_;
  std::uint32_t next_order_ = 0;
  std::vector<Move> heap_;  // the worst in front
  std::vector<int> removed_;
  std::vector<Unit> added_;
};

}  // namespace neuroshard
