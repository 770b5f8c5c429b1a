// Table moves: a table is laid out otherwise, or units of many ranks go elsewhere.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/random.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/core/search_context.h"
#include "server/search/core/shard_table.h"
#include "server/search/core/table_layouts.h"
#include "server/search/refine/moves/table_placer.h"
#include "server/search/refine/objective/move_bench.h"
#include "server/search/refine/solution/move.h"
#include "server/search/refine/solution/solution.h"

namespace neuroshard {

// The neighbourhood of whole tables around one rank. Every move is complete (it removes and adds
// all units of the tables it is about) and was estimated with the room that there is; rules on
// several tables are left to Solution::Allows. Collect places up to 24 tables in all their layouts.
// For one thread.
class TableMoves : MoveTools {
 public:
  // `bench` must outlive it.
  explicit TableMoves(MoveBench& bench);

  // Adds to `list`, for tables with a shard on `source` (those that cost it most): every layout
  // that the rules allow, at the ranks or hosts with the lowest totals; a row-cut block on another
  // host, alone or against another one; row_wise_subset without the source; a co-located group
  // elsewhere. Fewer when the context says stop.
  void Collect(int source, MoveList& list);

  // Lays some table out in some way, at the ranks or hosts with the lowest totals. False: nothing
  // changed, for lack of room.
  bool RandomRelayout(Random& random);

 private:
  const std::vector<TableLayout>& LayoutsOf(int table);
  // The layout in the table's present residency; data_parallel is in device memory.
  TableLayout Stay(int table, TableLayout layout) const;
  // Adds the shards of a layout, or of all its layouts, to the table of shards.
  void AddShards(int table, const TableLayout& layout);
  void AddShards(int table);
  void Relayout(int table, MoveList& list);
  void MoveHostBlocks(int host, MoveList& list);
  void MoveGroup(const std::vector<int>& group, MoveList& list);
  // Adds the move from removed_ to `added` if the list wants it.
  void Estimate(std::span<const Unit> added, MoveList& list);

  TablePlacer placer_;
  std::vector<std::vector<TableLayout>> layouts_of_;  // by table; empty: not asked for yet

  // Scratch of Collect, kept for its memory.
  std::vector<int> tables_;
  std::vector<std::int64_t> widths_;
  std::vector<int> removed_;
};

}  // namespace neuroshard
