#include "server/search/placement/placement.h"

#include <algorithm>
#include <cstddef>

#include "common/domain/memory_use.h"
#include "server/evaluate/lay_out.h"

namespace neuroshard {

std::vector<Piece> WholeTables(const PlanRequest& request) {
  std::vector<Piece> pieces;
  pieces.reserve(request.tables.size());
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    pieces.push_back({static_cast<int>(t), 0, request.tables[t].embedding_dim});
  }
  return pieces;
}

bool CanHalve(const Piece& piece) { return piece.cols % (2 * kColumnAlignment) == 0; }

std::vector<Piece> LeastPieces(const PlanRequest& request) {
  const std::vector<std::int64_t> available = AvailableBytes(request);
  const std::int64_t room = available.empty() ? 0 : *std::ranges::max_element(available);
  std::vector<Piece> pieces;
  for (const Piece& table : WholeTables(request)) {
    Piece piece = table;
    const bool pooled = At(request.tables, table.table).kind == TableKind::kEmbeddingBag;
    while (pooled && CanHalve(piece) && PieceBytes(request, piece.table, piece.cols) > room)
      piece.cols /= 2;
    // Where halves do not fit either, the whole says what lacks.
    if (PieceBytes(request, piece.table, piece.cols) > room) piece.cols = table.cols;
    for (; piece.col_offset < table.cols; piece.col_offset += piece.cols) pieces.push_back(piece);
  }
  return pieces;
}

std::int64_t PieceBytes(const PlanRequest& request, int table, std::int64_t cols) {
  const Table& of = At(request.tables, table);
  return ShardMemory(request, of, of.num_embeddings, cols).total_bytes();
}

std::vector<std::int64_t> WholeBytes(const PlanRequest& request) {
  return Mapped<std::int64_t>(WholeTables(request), [&](const Piece& table) {
    return PieceBytes(request, table.table, table.cols);
  });
}

std::int64_t AlignedColumnsIn(const PlanRequest& request, int table, std::int64_t most_cols,
                              std::int64_t bytes) {
  std::int64_t fits = 0;
  std::int64_t too_many = most_cols / kColumnAlignment + 1;
  while (too_many - fits > 1) {
    const std::int64_t middle = fits + (too_many - fits) / 2;
    (PieceBytes(request, table, middle * kColumnAlignment) <= bytes ? fits : too_many) = middle;
  }
  return fits * kColumnAlignment;
}

std::vector<std::int64_t> AvailableBytes(const PlanRequest& request) {
  return Mapped<std::int64_t>(request.topology.devices, [&](const Device& device) {
    return device.memory_bytes - ReserveBytes(request.memory, device.memory_bytes);
  });
}

Plan BuildPlan(const PlanRequest& request, const Placement& placement) {
  Plan plan = UnplacedTables(request);
  for (std::size_t i = 0; i < placement.pieces.size(); ++i) {
    const Piece& piece = placement.pieces[i];
    const std::size_t t = static_cast<std::size_t>(piece.table);
    plan.tables[t].shards.push_back({.row_offset = 0,
                                     .rows = request.tables[t].num_embeddings,
                                     .col_offset = piece.col_offset,
                                     .cols = piece.cols,
                                     .rank = placement.rank_of_piece[i]});
  }
  for (TablePlan& table_plan : plan.tables) {
    std::ranges::sort(table_plan.shards, {}, &Shard::col_offset);
    table_plan.sharding_type =
        table_plan.shards.size() == 1 ? ShardingType::kTableWise : ShardingType::kColumnWise;
  }
  return plan;
}

}  // namespace neuroshard
