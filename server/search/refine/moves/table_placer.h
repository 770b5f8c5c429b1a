// Table placer: where the units of a table that is laid out anew would go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/core/shard_table.h"
#include "server/search/core/table_layouts.h"
#include "server/search/refine/objective/workbench.h"
#include "server/search/refine/solution/solution.h"
#include "server/search/refine/solution/unit.h"

namespace neuroshard {

// Places units one after the other, each on the rank, host or ranks with the lowest estimated total
// that have room, with what the move removes and adds so far counted. Of the rules it keeps those
// on ranks and distinct ranks of a table; Solution::Allows says whether all are kept. A unit on a
// rank takes time in the 64 ranks that are lowest (or all that the rules name), one on a host or a
// subset in the ranks. For one thread.
class TablePlacer : MoveTools {
 public:
  // `bench` must outlive it.
  explicit TablePlacer(Workbench& bench);

  // TableLayouts::Of, found once.
  const std::vector<TableLayout>& LayoutsOf(int table);
  // The layout in the table's present residency; data_parallel is in device memory.
  TableLayout Stay(int table, TableLayout layout) const;
  // Add the shards of a layout, or of all the table's layouts as Stay has them, to the table of
  // shards.
  void AddShards(int table, const TableLayout& layout);
  void AddShards(int table);

  // Totals and room are those of the solution as it is.
  void Reset();

  // From there, without some units; nothing is added yet. Takes time in their shards.
  void Without(std::span<const int> removed);

  // Adds the units of a layout. host, rank: the only one that will do; -1: any. False: no room;
  // some units may have been added.
  bool Place(int table, const TableLayout& layout, int host = -1, int rank = -1);

  const std::vector<Unit>& added() const { return added_; }
  // By rank, with what was removed and added.
  std::span<const double> total_ms() const { return total_ms_; }

 private:
  bool PlaceUnit(Unit unit, int holders, int host, int rank);
  bool HasRoom(const Unit& unit) const;
  // Changes totals and room by a unit.
  void Count(const Unit& unit, int sign);
  bool Fits(int rank, std::int64_t bytes) const {
    return solution_.Fits(rank, bytes + more_bytes_[static_cast<std::size_t>(rank)]);
  }

  const std::vector<int> numbers_;  // of all ranks

  std::vector<Unit> added_;
  std::vector<double> now_ms_;            // by rank, as the solution is
  std::vector<double> total_ms_;          // by rank, with what was removed and added
  std::vector<std::int64_t> more_bytes_;  // by rank, likewise
  std::vector<int> counted_;              // ranks of which the last two differ from now
  // Some ranks with the lowest totals: the `now_lowest_` first ones as the solution is, ascending,
  // then those where something was removed.
  std::vector<int> lowest_;
  std::size_t now_lowest_ = 0;
  std::vector<std::int64_t> widths_;  // of one Place or AddShards, kept for its memory
  std::vector<std::vector<TableLayout>> layouts_of_;  // by table; empty: not asked for yet
};

}  // namespace neuroshard
