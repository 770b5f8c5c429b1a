#include "common/domain/held_shards.h"

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <utility>

#include "common/domain/table_names.h"

namespace neuroshard {

double Cells(const Shard& shard) {
  return static_cast<double>(shard.rows) * static_cast<double>(shard.cols);
}

std::optional<Shard> Overlap(const Shard& a, const Shard& b) {
  const std::int64_t row = std::max(a.row_offset, b.row_offset);
  const std::int64_t col = std::max(a.col_offset, b.col_offset);
  const std::int64_t rows = std::min(a.row_offset + a.rows, b.row_offset + b.rows) - row;
  const std::int64_t cols = std::min(a.col_offset + a.cols, b.col_offset + b.cols) - col;
  if (rows <= 0 || cols <= 0) return std::nullopt;
  return Shard{row, rows, col, cols, a.rank};
}

bool IsInside(const Shard& shard, std::int64_t rows, std::int64_t cols) {
  return shard.row_offset >= 0 && shard.rows > 0 && shard.rows <= rows &&
         shard.row_offset <= rows - shard.rows && shard.col_offset >= 0 && shard.cols > 0 &&
         shard.cols <= cols && shard.col_offset <= cols - shard.cols;
}

HeldShards::HeldShards(std::span<const Shard> shards, std::int64_t rows, std::int64_t cols) {
  std::int64_t held_rows = 0;
  std::int64_t held_cols = 0;
  for (const Shard& shard : shards) {
    if (shard.rows == 0) continue;  // an empty row block holds nothing
    if (!IsInside(shard, rows, cols)) {
      shards_.clear();
      return;
    }
    held_rows = std::max(held_rows, shard.row_offset + shard.rows);
    held_cols = std::max(held_cols, shard.col_offset + shard.cols);
    shards_.push_back(shard);
  }
  if (held_rows != rows || held_cols != cols) {
    shards_.clear();
    return;
  }
  std::ranges::sort(shards_, {}, [](const Shard& shard) {
    return std::tie(shard.rank, shard.col_offset, shard.row_offset);
  });
  std::vector<Shard> kept;
  for (const Shard& shard : shards_) {
    const bool shares_columns = !kept.empty() && kept.back().rank == shard.rank &&
                                shard.col_offset < kept.back().col_offset + kept.back().cols;
    if (!shares_columns) kept.push_back(shard);
  }
  shards_ = std::move(kept);
}

double HeldShards::MissingCells(const Shard& shard) const {
  double cells = Cells(shard);
  auto held = std::lower_bound(
      shards_.begin(), shards_.end(), shard, [](const Shard& earlier, const Shard& now) {
        return earlier.rank < now.rank ||
               (earlier.rank == now.rank && earlier.col_offset + earlier.cols <= now.col_offset);
      });
  const std::int64_t col_end = shard.col_offset + shard.cols;
  for (; held != shards_.end() && held->rank == shard.rank && held->col_offset < col_end; ++held) {
    if (const auto common = Overlap(shard, *held)) cells -= Cells(*common);
  }
  return cells;
}

std::vector<const TablePlan*> TablesInPlace(const PlanRequest& request) {
  if (!request.migration.has_value()) {
    return std::vector<const TablePlan*>(request.tables.size(), nullptr);
  }
  auto in_place = EntriesOf(request.migration->previous, request.tables);
  for (std::size_t t = 0; t < in_place.size(); ++t) {
    if (in_place[t] == nullptr) continue;
    const Table& table = request.tables[t];
    const HeldShards held(in_place[t]->shards, table.num_embeddings, table.embedding_dim);
    if (held.empty()) in_place[t] = nullptr;
  }
  return in_place;
}

}  // namespace neuroshard
