// Rank transfers: columns that may go from one rank to others, and what may come back for them,
// each change of a rank with its predicted compute cost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "server/search/core/shard_table.h"
#include "server/search/core/table_layouts.h"
#include "server/search/refine/objective/objective.h"
#include "server/search/refine/objective/rank_costs.h"
#include "server/search/refine/solution/solution.h"
#include "server/search/refine/solution/unit.h"

namespace neuroshard {

// What the moves around a source rank are put together from (RankMoves). Every unit in it keeps the
// rules on its table alone; memory and other tables are not looked at. List takes time in units on
// the source x widths x targets, plus units on the targets. For one thread.
class RankTransfers {
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

  // All must outlive it.
  RankTransfers(const TableLayouts& layouts, ShardTable& shard_table, RankCosts& rank_costs)
      : layouts_(layouts), shard_table_(shard_table), rank_costs_(rank_costs) {}

  // Lists those of `source`. The costs of all slots are known then.
  void List(const Solution& solution, const Objective& objective, int source);

  // Ranks that something may go to: those with the lowest times and loads, 16 at most.
  const std::vector<int>& targets() const { return targets_; }
  const std::vector<Departure>& departures() const { return departures_; }
  const std::vector<Transfer>& transfers() const { return transfers_; }
  const std::vector<Return>& returns() const { return returns_; }
  // Those of one target are returns() [returns_begin(target), returns_begin(target + 1)).
  std::size_t returns_begin(std::size_t target) const { return returns_begin_[target]; }

 private:
  void ChooseTargets(const Solution& solution, const Objective& objective, int source);
  void ListDepartures(const Solution& solution, int source);
  void ListTransfers(const Solution& solution);
  void ListReturns(const Solution& solution, int source);
  // Fills joined_.
  void FindJoined(const Solution& solution, const Unit& unit);
  void FindSlots(const Solution& solution, int source);

  const TableLayouts& layouts_;
  ShardTable& shard_table_;
  RankCosts& rank_costs_;

  // Of one List, kept for their memory.
  std::vector<int> targets_;
  std::vector<Departure> departures_;
  std::vector<Transfer> transfers_;
  std::vector<Return> returns_;
  std::vector<std::size_t> returns_begin_;  // by target, one more
  std::vector<int> target_of_rank_;         // -1: none
  std::vector<int> joined_;                 // by target: the unit of a table there, or -1
};

}  // namespace neuroshard
