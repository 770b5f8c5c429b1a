// Partition moves: a rank or host and another one share out anew what both hold.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "server/search/refine/moves/pair_partition.h"
#include "server/search/refine/objective/move_bench.h"
#include "server/search/refine/solution/move.h"
#include "server/search/refine/solution/unit.h"

namespace neuroshard {

// The neighbourhood of exchanges of any number of units between two places: of those on single
// ranks between two ranks, and of those on hosts between two hosts. It balances large units, and
// finds room where memory is nearly full, which takes more than swaps of two. Units are neither cut
// nor joined, keep their residencies, and may be on either place by the rules on their table alone;
// Solution::Allows says the rest. A host counts as its slowest and its fullest rank. Of places with
// more than 125 units together nothing is tried. Collect takes time in the ranks, the hosts, and
// 500 nodes (PartitionPair) for each of 4 ranks and 4 hosts. For one thread.
class PartitionMoves : MoveTools {
 public:
  // `bench` must outlive it.
  explicit PartitionMoves(MoveBench& bench) : MoveTools(bench) {}

  // Adds to `list` the best partition of `source` with each of the ranks that take least time, and
  // of its host likewise, if it relieves the slower of the two.
  void Collect(int source, MoveList& list);

 private:
  // A rank or a host.
  struct Place {
    int index = 0;
    HostRanks ranks;
  };

  bool MayBeOnRank(const Unit& unit, int rank) const;
  bool MayBeOnHost(const Unit& unit, int host) const;
  // Lists in ids_ what each place has that may be on the other; false: too many units, or too few.
  bool ListUnits(std::span<const int> on_first, std::span<const int> on_second,
                 const std::array<Place, 2>& places,
                 bool (PartitionMoves::*may_be_on)(const Unit&, int) const);
  // Partitions ids_; each unit is moved(unit, place) on the other place.
  template <typename Moved>
  void Partition(const std::array<Place, 2>& places, const Moved& moved, MoveList& list);

  // Scratch of one Collect, kept for its memory.
  std::vector<double> total_ms_;  // by rank
  std::vector<int> ids_;
  std::vector<std::array<Unit, 2>> units_;  // those of ids_ on either place
  std::vector<PartitionItem> items_;
  std::vector<int> removed_;
  std::vector<Unit> added_;
};

}  // namespace neuroshard
