#include "server/search/conflict/kept_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/failure_reason.h"
#include "common/base/violations.h"
#include "common/domain/held_shards.h"
#include "common/domain/memory_pools.h"
#include "common/domain/memory_use.h"
#include "common/domain/shard_layout.h"
#include "common/domain/table_names.h"
#include "server/evaluate/check_plan.h"
#include "server/evaluate/rules/list_text.h"
#include "server/evaluate/rules/row_cuts.h"

namespace neuroshard {
namespace {

constexpr std::string_view kKeptTable = "plan.tables[";

// Of a plan of kept tables: rules that one of them breaks by itself.
void AddFaults(const PlanRequest& request, const Plan& kept,
               const std::vector<std::size_t>& position_of, Violations& violations) {
  for (const Violation& fault : CheckPlan(request, kept)) {
    if (!fault.field.starts_with(kKeptTable)) continue;
    std::size_t entry = 0;
    const char* const end = fault.field.data() + fault.field.size();
    const auto after = std::from_chars(fault.field.data() + kKeptTable.size(), end, entry);
    violations.Add(fmt::format("migration.previous.tables[{}{}", position_of[entry],
                               std::string_view(after.ptr, end)),
                   fault.description);
  }
}

void AddFullRanks(const PlanRequest& request, const Plan& kept,
                  const std::vector<std::size_t>& table_of, Violations& violations) {
  const std::vector<Device>& devices = request.topology.devices;
  const RowCuts row_cuts(request);
  std::vector<MemoryUse> taken(devices.size());
  std::vector<std::vector<int>> tables_of(devices.size());
  MemoryPools pools(request);
  for (std::size_t e = 0; e < kept.tables.size(); ++e) {
    const ShardLayout layout = LayoutOf(kept.tables[e], row_cuts.of(static_cast<int>(table_of[e])));
    for (const Shard& shard : kept.tables[e].shards) {
      const MemoryUse use =
          ShardMemory(request, request.tables[table_of[e]], layout, shard.rows, shard.cols);
      taken[static_cast<std::size_t>(shard.rank)] += use;
      pools.Add(shard.rank, use.by_tier());
      std::vector<int>& of_rank = tables_of[static_cast<std::size_t>(shard.rank)];
      const int table = static_cast<int>(table_of[e]);
      if (of_rank.empty() || of_rank.back() != table) of_rank.push_back(table);
    }
  }
  const TableNames names(request.tables);
  const auto listed = [&](std::size_t rank) {
    return ListText(names.ReferencesTo(tables_of[rank]));
  };
  for (std::size_t r = 0; r < devices.size(); ++r) {
    const std::int64_t available =
        devices[r].memory_bytes - ReserveBytes(request.memory, devices[r].memory_bytes);
    const std::int64_t needed = taken[r].total_bytes();
    if (needed > 0 && needed > available) {
      violations.Add(
          "migration.only_types",
          fmt::format("{}, which must stay on rank {}, need {} bytes, it has {} for shards",
                      listed(r), r, needed, std::max<std::int64_t>(0, available)));
    }
    const int rank = static_cast<int>(r);
    for (const SharedMemory& memory : kSharedMemories) {
      const std::int64_t bytes = taken[r].by_tier()[memory.tier];
      const std::int64_t left = pools.Left(rank, memory.tier);
      if (bytes == 0 || left >= 0) continue;
      violations.Add("migration.only_types",
                     fmt::format("{}, which must stay on rank {}, need {} bytes of the {} of host "
                                 "{}, which lacks {}",
                                 listed(r), r, bytes, memory.name, pools.host_of(rank), -left));
    }
  }
}

}  // namespace

Status CheckKeptTables(const PlanRequest& request) {
  if (!request.migration.has_value() || request.migration->only_types.empty()) {
    return absl::OkStatus();
  }
  const std::vector<ShardingType>& only_types = request.migration->only_types;
  const std::vector<TablePlan>& previous = request.migration->previous.tables;
  const std::vector<const TablePlan*> in_place = TablesInPlace(request);
  Plan kept;
  kept.world_size = request.topology.num_ranks();
  kept.local_world_size = request.topology.ranks_per_host();
  std::vector<std::size_t> table_of;     // by entry: in the request
  std::vector<std::size_t> position_of;  // by entry: in the plan in place
  for (std::size_t t = 0; t < in_place.size(); ++t) {
    if (in_place[t] == nullptr || std::find(only_types.begin(), only_types.end(),
                                            in_place[t]->sharding_type) != only_types.end()) {
      continue;
    }
    kept.tables.push_back(*in_place[t]);
    table_of.push_back(t);
    position_of.push_back(static_cast<std::size_t>(in_place[t] - previous.data()));
  }
  Violations violations;
  AddFaults(request, kept, position_of, violations);
  if (violations.empty()) AddFullRanks(request, kept, table_of, violations);
  if (violations.empty()) return absl::OkStatus();
  const Status listed = violations.ToStatus();
  Status status = FailedPrecondition(
      "no plan can exist: tables that are not of migration.only_types cannot stay as they are: {}",
      std::string(listed.message()));
  listed.ForEachPayload(
      [&](absl::string_view type, const absl::Cord& payload) { status.SetPayload(type, payload); });
  return WithReason(std::move(status), FailureReason::kConstraintsConflict);
}

}  // namespace neuroshard
