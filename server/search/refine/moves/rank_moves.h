// Rank moves: columns, whole units and pairs of units change ranks to relieve one of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "server/search/core/search_context.h"
#include "server/search/core/shard_table.h"
#include "server/search/core/table_layouts.h"
#include "server/search/refine/moves/rank_transfers.h"
#include "server/search/refine/objective/move_pricer.h"
#include "server/search/refine/objective/rank_costs.h"
#include "server/search/refine/solution/move.h"
#include "server/search/refine/solution/solution.h"

namespace neuroshard {

// The neighbourhood of one rank, put together from its transfers: shifts (columns of a unit go to
// another rank, all or a cut) and swaps of two whole units. Every move has room in memory and keeps
// the rules on each of its tables alone; its estimate is the objective by predicted compute (two
// changes of one rank are taken to add up) and by the surrogate of communication. Collect takes
// time in transfers x (returns of a target). For one thread.
class RankMoves {
 public:
  // All must outlive it.
  RankMoves(SearchContext& context, const TableLayouts& layouts, ShardTable& shard_table,
            RankCosts& rank_costs);

  // Adds to `list` what relieves `source`, with estimates by `pricer`.
  void Collect(const Solution& solution, const MovePricer& pricer, int source, MoveList& list);

 private:
  void AddShifts(const Solution& solution, const MovePricer& pricer, int source, MoveList& list);
  void AddSwaps(const Solution& solution, const MovePricer& pricer, int source, MoveList& list);
  // Of moves that were tried, some of which had room in memory and were estimated. With host memory
  // most have none; otherwise nearly all have, and all count.
  void CountWork(const Solution& solution, std::size_t tried, std::size_t estimated);

  const RankTransfers::Departure& DepartureOf(const RankTransfers::Transfer& transfer) const {
    return transfers_.departures()[static_cast<std::size_t>(transfer.departure)];
  }
  std::int64_t BytesOf(const Unit& unit) const {
    return unit.cols == 0 ? 0 : shard_table_.bytes(unit.shards.full);
  }
  CommLoad LoadOf(const Unit& unit) const {
    return unit.cols == 0 ? CommLoad{} : shard_table_.load(unit.shards.full);
  }

  SearchContext& context_;
  ShardTable& shard_table_;
  RankCosts& rank_costs_;
  RankTransfers transfers_;

  // Of one Collect, kept for their memory.
  std::vector<Objective::Others> others_;  // by target: all ranks but it and the source
  struct MoreBytes {
    std::int64_t source = 0;
    std::int64_t target = 0;
  };
  std::vector<MoreBytes> return_bytes_;  // by return: that the two ranks hold then
};

}  // namespace neuroshard
