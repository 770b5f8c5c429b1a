// Rank moves: columns, whole units and pairs of units change ranks to relieve one of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "server/search/core/search_context.h"
#include "server/search/core/shard_table.h"
#include "server/search/core/table_layouts.h"
#include "server/search/refine/objective/move_bench.h"
#include "server/search/refine/objective/objective.h"
#include "server/search/refine/objective/rank_costs.h"
#include "server/search/refine/solution/move.h"
#include "server/search/refine/solution/solution.h"
#include "server/search/refine/solution/unit.h"

namespace neuroshard {

// What the moves around a source rank are put together from (RankMoves). Every unit in it keeps the
// rules on its table alone; memory and other tables are not looked at. List takes time in units on
// the source x widths x targets, plus units on the targets. For one thread.
class RankTransfers : MoveTools {
 public:
  using Slot = RankCosts::Slot;

  // Some or all columns of a unit on the source that may leave it.
  struct Departure {
    int unit = 0;
    std::int64_t cols = 0;
    Unit rest;  // what stays; cols 0: nothing
    // What arrives on a target without shards of the table, and its type on a target with some.
    // None: rules forbid it.
    std::optional<Unit> arriving = std::nullopt;
    std::optional<ShardingType> joined_type = std::nullopt;
    Slot source_slot = 0;  // the source without it
  };
  // A departure to a target, joining what the target has of the table.
  struct Transfer {
    int departure = 0;
    int target = 0;        // index into targets()
    int joined = -1;       // unit
    Unit arriving;         // as it will be there
    Slot target_slot = 0;  // the target with it
  };
  // A unit on a target that comes to the source, joining what it has of the table.
  struct Return {
    int unit = 0;
    int joined = -1;       // unit on the source
    Unit arriving = {};    // as it will be on the source
    Slot target_slot = 0;  // the target without it
    Slot source_slot = 0;  // the source with it
  };

  // `bench` must outlive it.
  explicit RankTransfers(MoveBench& bench)
      : MoveTools(bench), objective_(bench.pricer.objective()) {}

  // Lists those of `source`. The costs of all slots are known then.
  void List(int source);

  // Ranks that something may go to: those with the lowest times and loads, 16 at most.
  const std::vector<int>& targets() const { return targets_; }
  const std::vector<Departure>& departures() const { return departures_; }
  const std::vector<Transfer>& transfers() const { return transfers_; }
  const std::vector<Return>& returns() const { return returns_; }
  // Those of one target are returns() [returns_begin(target), returns_begin(target + 1)).
  std::size_t returns_begin(std::size_t target) const { return returns_begin_[target]; }

 private:
  void ChooseTargets(int source);
  void ListDepartures(int source);
  void ListTransfers();
  void ListReturns(int source);
  // Fills joined_.
  void FindJoined(const Unit& unit);
  void FindSlots(int source);

  const Objective& objective_;

  // Scratch of List, kept for its memory.
  std::vector<int> targets_;
  std::vector<Departure> departures_;
  std::vector<Transfer> transfers_;
  std::vector<Return> returns_;
  std::vector<std::size_t> returns_begin_;  // by target, one more
  std::vector<int> target_of_rank_;         // -1: none
  std::vector<int> joined_;                 // by target: the unit of a table there, or -1
};

// The neighbourhood of one rank, put together from its transfers: shifts (columns of a unit go to
// another rank, all or a cut) and swaps of two whole units. Every move has room in memory and keeps
// the rules on each of its tables alone; its estimate is the objective by predicted compute (two
// changes of one rank are taken to add up) and by the surrogate of communication. Collect takes
// time in transfers x (returns of a target). For one thread.
class RankMoves : MoveTools {
 public:
  // `bench` must outlive it.
  explicit RankMoves(MoveBench& bench);

  // Adds to `list` what relieves `source`.
  void Collect(int source, MoveList& list);

 private:
  void AddShifts(int source, MoveList& list);
  void AddSwaps(int source, MoveList& list);
  // Counts moves that were tried, some of which had room in memory and were estimated. With host
  // memory most have none; otherwise nearly all have, and all count.
  void CountWork(std::size_t tried, std::size_t estimated);

  const RankTransfers::Departure& DepartureOf(const RankTransfers::Transfer& transfer) const {
    return transfers_.departures()[static_cast<std::size_t>(transfer.departure)];
  }
  std::int64_t BytesOf(const Unit& unit) const {
    return unit.cols == 0 ? 0 : shard_table_.bytes(unit.shards.full);
  }
  CommLoad LoadOf(const Unit& unit) const {
    return unit.cols == 0 ? CommLoad{} : shard_table_.load(unit.shards.full);
  }

  RankTransfers transfers_;

  // Scratch of Collect, kept for its memory.
  std::vector<Objective::LargestValues> unchanged_;  // by target: all ranks but it and the source
  struct MoreBytes {
    std::int64_t source = 0;
    std::int64_t target = 0;
  };
  std::vector<MoreBytes> return_bytes_;  // by return: that the two ranks hold then
};

}  // namespace neuroshard
