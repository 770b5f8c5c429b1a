#include "server/evaluate/migration_report.h"

#include <algorithm>
#include <cmath>

#include "common/domain/memory_use.h"
#include "common/domain/table_names.h"

namespace neuroshard {

PreviousPlacement::PreviousPlacement(const PlanRequest& request)
    : request_(request),
      held_(request.tables.size()),
      kernels_(request.tables.size(), ComputeKernel::kFused) {
  const std::vector<const TablePlan*> in_place = TablesInPlace(request);
  for (std::size_t t = 0; t < in_place.size(); ++t) {
    if (in_place[t] == nullptr) continue;
    const Table& table = request.tables[t];
    kernels_[t] = in_place[t]->compute_kernel;
    held_[t] = HeldShards(in_place[t]->shards, table.num_embeddings, table.embedding_dim);
  }
}

std::int64_t PreviousPlacement::MovedBytes(int table, ComputeKernel kernel,
                                           const Shard& shard) const {
  const HeldShards& held = held_[static_cast<std::size_t>(table)];
  const Table& of = request_.tables[static_cast<std::size_t>(table)];
  if (held.empty() || !IsInside(shard, of.num_embeddings, of.embedding_dim)) return 0;
  const double cells =
      ChangesMemory(this->kernel(table), kernel) ? Cells(shard) : held.MissingCells(shard);
  const double bytes = cells * ElementBytes(of.weight_dtype);
  constexpr double kSaturated = 0x1.0p60;
  return std::llround(std::min(bytes, kSaturated));
}

MigrationReport ReportMigration(const PlanRequest& request, const Plan& plan) {
  const PreviousPlacement previous(request);
  const std::vector<int> table_of = TablesOf(plan, request.tables);
  const TableNames names(request.tables);
  MigrationReport report;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    if (table_of[t] < 0) continue;
    std::int64_t bytes = 0;
    for (const Shard& shard : plan.tables[t].shards) {
      AddBytes(bytes, previous.MovedBytes(table_of[t], plan.tables[t].compute_kernel, shard));
    }
    if (bytes == 0) continue;
    report.tables.push_back({names.ReferenceTo(table_of[t]), bytes});
    AddBytes(report.moved_bytes, bytes);
  }
  return report;
}

double CostWithMigration(const PlanRequest& request, const Plan& plan, const PlanCost& cost) {
  if (!request.migration || request.migration->price_ms_per_gib == 0) return cost.embedding_cost_ms;
  const double moved_gib =
      static_cast<double>(ReportMigration(request, plan).moved_bytes) / (1 << 30);
  return cost.embedding_cost_ms + request.migration->price_ms_per_gib * moved_gib;
}

}  // namespace neuroshard
