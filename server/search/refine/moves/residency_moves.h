// Residency moves: tables go to device memory, to host memory or to SSD, get more or less cache, and
// change places while others make room for them.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "server/search/refine/moves/room_maker.h"
#include "server/search/refine/moves/table_placer.h"
#include "server/search/refine/objective/move_bench.h"
#include "server/search/refine/solution/move.h"

namespace neuroshard {

// How far the moves go.
enum class ResidencyNeighbourhood {
  kPromotions,  // a table of the rank has another residency
  kPlaces       // also: units change ranks, or swap
};

// The neighbourhood of one rank for tables in several memories. A move is a change that may need
// more device memory than there is, completed by a RoomMaker. Every move is complete (it removes and
// adds all units of the tables it changes, but for those that only change ranks), has room in device
// memory (in all memories where tables may be on SSD), and keeps the rules on residencies;
// Solution::Allows says the rest. Only for requests whose tables may be off their devices. For one
// thread.
class ResidencyMoves : MoveTools {
 public:
  // `bench` must outlive it.
  explicit ResidencyMoves(MoveBench& bench);

  // Adds to `list` what relieves `source`. Moves with estimates above `most_ms` may be left out.
  void Collect(int source, ResidencyNeighbourhood neighbourhood, double most_ms, MoveList& list);

 private:
  // Begins with units going to other places, each as moved(id, place) is there.
  template <typename Moved>
  void BeginWith(std::initializer_list<std::pair<int, int>> places, const Moved& moved);
  // Completes the move and adds it to the list, if it can be and the list wants it.
  void Complete(MoveList& list);
  void TryPromotions(MoveList& list);
  // A unit, and what it adds to the time of a rank.
  struct UnitShare {
    double share_ms = 0;
    int id = 0;
  };
  // The units that may change places and cost the rank most.
  std::vector<UnitShare> Costliest(std::span<const int> ids, int rank, std::size_t most) const;
  void TryShiftsAndSwaps(int source, MoveList& list);
  // Blocks of a host go to another one, or swap with one there.
  void TryHostBlocks(int source, MoveList& list);

  RoomMaker maker_;
  TablePlacer placer_;
  std::vector<int> tables_;  // of the source, costliest first
};

}  // namespace neuroshard
