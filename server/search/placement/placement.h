// An assignment under construction: pieces of tables and the ranks they go to.
#pragma once

#include <cstdint>
#include <vector>

#include "common/domain/plan.h"
#include "common/domain/plan_request.h"

namespace neuroshard {

// All rows of a column range of one table; a whole table where nothing is cut.
struct Piece {
  int table = 0;  // index into PlanRequest::tables
  std::int64_t col_offset = 0;
  std::int64_t cols = 0;

  bool operator==(const Piece&) const = default;
};

// rank_of_piece[i] is where pieces[i] goes. The pieces of every table tile it.
struct Placement {
  std::vector<Piece> pieces;
  std::vector<int> rank_of_piece;
};

// One piece a table, in the request's order.
std::vector<Piece> WholeTables(const PlanRequest& request);

// Whole tables, but for those that no rank has room for: they are halved in columns until one has.
// Unpooled ones, and those whose halves would not be multiples of kColumnAlignment before they fit,
// stay whole. Pieces of a table follow each other.
std::vector<Piece> LeastPieces(const PlanRequest& request);

// Whether halves of the piece are multiples of kColumnAlignment columns.
bool CanHalve(const Piece& piece);

// Bytes that `cols` columns of a table take under the request's memory rule.
std::int64_t PieceBytes(const PlanRequest& request, int table, std::int64_t cols);

// Bytes of each table as a whole, likewise.
std::vector<std::int64_t> WholeBytes(const PlanRequest& request);

// The most columns of a table that fit into `bytes`, a multiple of kColumnAlignment from 0 to
// `most_cols`. O(log most_cols).
std::int64_t AlignedColumnsIn(const PlanRequest& request, int table, std::int64_t most_cols,
                              std::int64_t bytes);

// Bytes of each rank that shards may take: its capacity less its reserve. Negative where the
// reserve alone is too much.
std::vector<std::int64_t> AvailableBytes(const PlanRequest& request);

// The placement as a plan: tables in the request's order, shards in ascending column order,
// table_wise where a table has one shard. Two adjacent shards of a table on one rank stay two: the
// search chose and priced them so, and merged they would cost what nobody looked at.
Plan BuildPlan(const PlanRequest& request, const Placement& placement);

}  // namespace neuroshard
