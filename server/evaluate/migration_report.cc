#include "server/evaluate/migration_report.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <tuple>
#include <utility>

#include "common/domain/table_names.h"

namespace neuroshard {
namespace {

constexpr double kSaturated = 0x1.0p60;

bool IsInside(const Table& table, const Shard& shard) {
  return shard.row_offset >= 0 && shard.rows > 0 && shard.rows <= table.num_embeddings &&
         shard.row_offset <= table.num_embeddings - shard.rows && shard.col_offset >= 0 &&
         shard.cols > 0 && shard.cols <= table.embedding_dim &&
         shard.col_offset <= table.embedding_dim - shard.cols;
}

}  // namespace

PreviousPlacement::PreviousPlacement(const PlanRequest& request)
    : request_(request), held_(request.tables.size()) {
  if (!request.migration.has_value()) return;
  const Plan& plan = request.migration->previous;
  const std::vector<int> table_of = TablesOf(plan, request.tables);
  std::vector<bool> seen(request.tables.size());
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const TablePlan& table_plan = plan.tables[t];
    const std::size_t index = static_cast<std::size_t>(table_of[t]);
    if (table_of[t] < 0 || seen[index]) continue;
    seen[index] = true;
    const Table& table = request.tables[index];
    std::vector<Shard>& held = held_[index];
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    bool same_size = true;
    for (const Shard& shard : table_plan.shards) {
      if (shard.rows == 0) continue;  // an empty row block holds nothing
      same_size = same_size && IsInside(table, shard);
      if (!same_size) break;
      rows = std::max(rows, shard.row_offset + shard.rows);
      cols = std::max(cols, shard.col_offset + shard.cols);
      held.push_back(shard);
    }
    if (!same_size || rows != table.num_embeddings || cols != table.embedding_dim) {
      held.clear();
      continue;
    }
    std::sort(held.begin(), held.end(), [](const Shard& a, const Shard& b) {
      return std::tie(a.rank, a.col_offset, a.row_offset) <
             std::tie(b.rank, b.col_offset, b.row_offset);
    });
    std::vector<Shard> kept;
    for (const Shard& shard : held) {
      const bool shares_columns = !kept.empty() && kept.back().rank == shard.rank &&
                                  shard.col_offset < kept.back().col_offset + kept.back().cols;
      if (!shares_columns) kept.push_back(shard);
    }
    held = std::move(kept);
  }
}

std::int64_t PreviousPlacement::MovedBytes(int table, const Shard& shard) const {
  const std::vector<Shard>& held = held_[static_cast<std::size_t>(table)];
  const Table& of = request_.tables[static_cast<std::size_t>(table)];
  if (held.empty() || !IsInside(of, shard)) return 0;
  const std::int64_t row_end = shard.row_offset + shard.rows;
  const std::int64_t col_end = shard.col_offset + shard.cols;
  double cells = static_cast<double>(shard.rows) * static_cast<double>(shard.cols);
  auto before =
      std::lower_bound(held.begin(), held.end(), shard, [](const Shard& earlier, const Shard& now) {
        return earlier.rank < now.rank ||
               (earlier.rank == now.rank && earlier.col_offset + earlier.cols <= now.col_offset);
      });
  for (; before != held.end() && before->rank == shard.rank && before->col_offset < col_end;
       ++before) {
    const std::int64_t rows = std::min(row_end, before->row_offset + before->rows) -
                              std::max(shard.row_offset, before->row_offset);
    const std::int64_t cols = std::min(col_end, before->col_offset + before->cols) -
                              std::max(shard.col_offset, before->col_offset);
    if (rows > 0) cells -= static_cast<double>(rows) * static_cast<double>(cols);
  }
  const double bytes = cells * static_cast<double>(ElementBytes(of.weight_dtype));
  return std::llround(std::min(bytes, kSaturated));
}

MigrationReport ReportMigration(const PlanRequest& request, const Plan& plan) {
  const PreviousPlacement previous(request);
  const std::vector<int> table_of = TablesOf(plan, request.tables);
  const TableNames names(request.tables);
  constexpr std::int64_t kMaxBytes = std::int64_t{1} << 60;
  MigrationReport report;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    if (table_of[t] < 0) continue;
    std::int64_t bytes = 0;
    for (const Shard& shard : plan.tables[t].shards) {
      bytes = std::min(kMaxBytes, bytes + previous.MovedBytes(table_of[t], shard));
    }
    if (bytes == 0) continue;
    report.tables.push_back({names.ReferenceTo(table_of[t]), bytes});
    report.moved_bytes = std::min(kMaxBytes, report.moved_bytes + bytes);
  }
  return report;
}

}  // namespace neuroshard
