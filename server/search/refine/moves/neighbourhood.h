// Neighbourhoods: the moves that local search looks at around one rank of a solution.
#pragma once

#include <memory>
#include <span>

#include "server/search/refine/objective/workbench.h"
#include "server/search/refine/solution/move.h"
#include "server/search/refine/solution/unit.h"

namespace neuroshard {

// One kind of move. Every move is complete: the columns that it removes of a table are those that it
// adds. Most moves have room in device memory and keep the rules on each of their tables alone;
// Solution::Allows says whether one has room everywhere and keeps all rules. For one thread.
class Neighbourhood : protected MoveTools {
 public:
  // `bench` must outlive it.
  explicit Neighbourhood(Workbench& bench) : MoveTools(bench) {}
  virtual ~Neighbourhood() = default;

  // Adds to `list` what relieves `source`: fewer moves when the context says stop, and perhaps none
  // whose estimate is above `max_ms`.
  virtual void Collect(int source, double max_ms, MoveList& list) = 0;

 protected:
  // Adds a move, with its estimate, if the list wants it.
  void Propose(std::span<const int> removed, std::span<const Unit> added, MoveList& list) {
    list.Add(pricer_.Estimate(removed, added), removed, added);
  }
};

// Shifts (columns of a unit go to another rank, all or a cut) and swaps of two whole units, put
// together from what may leave the source and what may come to it from the ranks with the lowest
// times and loads, 16 at most. An estimate is the objective by predicted compute (two changes of one
// rank are taken to add up) and by the surrogate of communication. Collect takes time in units on
// the source x widths x targets x units on a target.
std::unique_ptr<Neighbourhood> MakeRankMoves(Workbench& bench);

// Exchanges of any number of units between two places: of those on single ranks between two ranks,
// and of those on hosts between two hosts, the best partition with each of the ranks (hosts) that
// take least time, if it relieves the slower of the two. They balance large units, and find room
// where memory is nearly full, which takes more than swaps of two. Units are neither cut nor joined
// and keep their residencies. A host counts as its slowest and its fullest rank. Of places with more
// than 125 units together nothing is tried. Only where compute adds up: otherwise what many units
// take together is not known beforehand. Collect takes time in the ranks, the hosts, and 500 nodes
// (PartitionPair) for each of 4 ranks and 4 hosts.
std::unique_ptr<Neighbourhood> MakePartitionMoves(Workbench& bench);

// For the tables with a shard on the source that cost it most: every layout that the rules allow, at
// the ranks or hosts with the lowest totals; a row-cut block on another host, alone or against
// another one; row_wise_subset without the source; a co-located group elsewhere. Collect places up
// to 24 tables in all their layouts.
std::unique_ptr<Neighbourhood> MakeTableMoves(Workbench& bench);

// Promotions: tables of the rank get other residencies. Exchanges: units change ranks or hosts, or
// swap. A move is a change that may need more device memory than there is, completed by demoting
// tables where room lacks (RoomMaker, residency_moves.cc). It removes and adds all units of the
// tables it changes, but for those that only change ranks, and has room in device memory (in all
// memories where tables may be on SSD). Only for requests whose tables may be off their devices.
std::unique_ptr<Neighbourhood> MakePromotionMoves(Workbench& bench);
std::unique_ptr<Neighbourhood> MakeExchangeMoves(Workbench& bench);

}  // namespace neuroshard
