#include "server/search/core/fixed_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/failure_reason.h"
#include "common/base/positions.h"
#include "common/base/violations.h"
#include "common/domain/held_shards.h"
#include "common/domain/memory_pools.h"
#include "common/domain/memory_use.h"
#include "common/domain/shard_layout.h"
#include "common/domain/table_names.h"
#include "server/evaluate/check_plan.h"
#include "server/evaluate/rules/list_text.h"
#include "server/evaluate/rules/row_cuts.h"
#include "server/search/placement/placement.h"

namespace neuroshard {
namespace {

constexpr std::string_view kTable = "plan.tables[";
// Each takes away the tables that CheckPlan lists; it lists some hundred at a time.
constexpr int kRounds = 50;

double WeightBytes(const Table& table) {
  return static_cast<double>(table.num_embeddings) * static_cast<double>(table.embedding_dim) *
         ElementBytes(table.weight_dtype);
}

double MostCopies(const CompiledRules& rules, std::size_t table) {
  const bool copied = rules.of(static_cast<int>(table)).types.contains(ShardingType::kDataParallel);
  return copied ? rules.num_ranks() : 1;
}

bool MustStay(const CompiledRules& rules, std::size_t table) {
  return rules.of(static_cast<int>(table)).kept != nullptr;
}

// Some tables of a plan in place as a plan of their own.
struct OwnPlan {
  Plan plan;
  std::vector<std::size_t> table_of;  // by entry of the plan: in the request
};

// tables[table]: null: not one of them.
OwnPlan OwnPlanOf(const PlanRequest& request, const std::vector<const TablePlan*>& tables) {
  OwnPlan own;
  own.plan.world_size = request.topology.num_ranks();
  own.plan.local_world_size = request.topology.ranks_per_host();
  for (std::size_t t = 0; t < tables.size(); ++t) {
    if (tables[t] == nullptr) continue;
    own.plan.tables.push_back(*tables[t]);
    own.table_of.push_back(t);
  }
  return own;
}

// A rule that a table breaks by itself.
struct TableFault {
  std::size_t entry = 0;  // of the plan
  std::string field;      // what follows its number
  std::string description;
};

std::vector<TableFault> FaultsOfTables(const PlanRequest& request, const Plan& plan) {
  std::vector<TableFault> faults;
  for (const Violation& violation : CheckPlan(request, plan)) {
    if (!violation.field.starts_with(kTable)) continue;
    TableFault& fault = faults.emplace_back();
    const char* const end = violation.field.data() + violation.field.size();
    fault.field.assign(
        std::from_chars(violation.field.data() + kTable.size(), end, fault.entry).ptr, end);
    fault.description = violation.description;
  }
  return faults;
}

void AddFullRanks(const PlanRequest& request, const OwnPlan& kept, Violations& violations) {
  const std::vector<std::int64_t> available = AvailableBytes(request);
  const RowCuts row_cuts(request);
  std::vector<MemoryUse> taken(available.size());
  std::vector<std::vector<int>> tables_of(available.size());
  MemoryPools pools(request);
  for (std::size_t e = 0; e < kept.plan.tables.size(); ++e) {
    const ShardLayout layout =
        LayoutOf(kept.plan.tables[e], row_cuts.of(static_cast<int>(kept.table_of[e])));
    for (const Shard& shard : kept.plan.tables[e].shards) {
      const MemoryUse use =
          ShardMemory(request, request.tables[kept.table_of[e]], layout, shard.rows, shard.cols);
      taken[static_cast<std::size_t>(shard.rank)] += use;
      pools.Add(shard.rank, use.by_tier());
      std::vector<int>& of_rank = tables_of[static_cast<std::size_t>(shard.rank)];
      const int table = static_cast<int>(kept.table_of[e]);
      if (of_rank.empty() || of_rank.back() != table) of_rank.push_back(table);
    }
  }
  const TableNames names(request.tables);
  const auto listed = [&](std::size_t rank) {
    return ListText(names.ReferencesTo(tables_of[rank]));
  };
  for (std::size_t r = 0; r < available.size(); ++r) {
    const std::int64_t needed = taken[r].total_bytes();
    if (needed > 0 && needed > available[r]) {
      violations.Add("migration.only_types",
                     "{}, which must stay on rank {}, need {} bytes, it has {} for shards",
                     listed(r), r, needed, std::max<std::int64_t>(0, available[r]));
    }
    const int rank = static_cast<int>(r);
    for (const SharedMemory& memory : kSharedMemories) {
      const std::int64_t bytes = taken[r].by_tier()[memory.tier];
      const std::int64_t left = pools.Left(rank, memory.tier);
      if (bytes == 0 || left >= 0) continue;
      violations.Add(
          "migration.only_types",
          "{}, which must stay on rank {}, need {} bytes of the {} of host {}, which lacks {}",
          listed(r), r, bytes, memory.name, pools.host_of(rank), -left);
    }
  }
}

}  // namespace

std::vector<const TablePlan*> TablesThatCanStay(const PlanRequest& request,
                                                const CompiledRules& rules) {
  std::vector<const TablePlan*> stay = TablesInPlace(request);
  for (std::size_t t = 0; t < stay.size(); ++t) {
    if (stay[t] == nullptr) continue;
    if (!rules.of(static_cast<int>(t)).types.contains(stay[t]->sharding_type) ||
        TierOf(stay[t]->compute_kernel) > rules.slowest_tier()) {
      stay[t] = nullptr;
    }
  }
  for (int round = 0; round < kRounds; ++round) {
    const OwnPlan own = OwnPlanOf(request, stay);
    const std::vector<TableFault> faults = FaultsOfTables(request, own.plan);
    if (faults.empty()) break;
    for (const TableFault& fault : faults) stay[own.table_of[fault.entry]] = nullptr;
  }
  return stay;
}

double BytesOf(const PlanRequest& request, const CompiledRules& rules,
               const std::vector<const TablePlan*>& stay, const std::vector<double>& paid) {
  double bytes = 0;
  for (std::size_t t = 0; t < stay.size(); ++t) {
    if (stay[t] != nullptr && !MustStay(rules, t)) {
      bytes += WeightBytes(request.tables[t]) * MostCopies(rules, t) - paid[t];
    }
  }
  return bytes;
}

FixedTables FixAllBut(const PlanRequest& request, const CompiledRules& rules,
                      const std::vector<const TablePlan*>& stay, const std::vector<double>& paid,
                      double bytes) {
  FixedTables fixed{stay};
  const auto lookups_a_byte = [&](std::size_t t) {
    const Table& table = request.tables[t];
    return table.pooling_factor / static_cast<double>(table.num_embeddings);
  };
  for (const std::size_t t : PositionsDescending(stay.size(), lookups_a_byte)) {
    if (stay[t] == nullptr || MustStay(rules, t)) continue;
    const double moved = WeightBytes(request.tables[t]) - paid[t];
    if (moved > bytes) continue;
    bytes -= moved;
    fixed[t] = nullptr;
  }
  return fixed;
}

Status CheckKeptTables(const PlanRequest& request) {
  if (!request.migration.has_value() || request.migration->only_types.empty()) {
    return absl::OkStatus();
  }
  const std::vector<ShardingType>& only_types = request.migration->only_types;
  std::vector<const TablePlan*> in_place = TablesInPlace(request);
  for (const TablePlan*& table : in_place) {
    const bool may_move =
        table != nullptr && std::ranges::find(only_types, table->sharding_type) != only_types.end();
    if (may_move) table = nullptr;
  }
  const OwnPlan kept = OwnPlanOf(request, in_place);
  Violations violations;
  for (const TableFault& fault : FaultsOfTables(request, kept.plan)) {
    const auto position =
        in_place[kept.table_of[fault.entry]] - request.migration->previous.tables.data();
    violations.Add(fmt::format("migration.previous.tables[{}{}", position, fault.field),
                   fault.description);
  }
  if (violations.empty()) AddFullRanks(request, kept, violations);
  if (violations.empty()) return absl::OkStatus();
  const Status listed = violations.ToStatus();
  return WithReason(
      WithPayloadsOf(listed, FailedPrecondition("no plan can exist: tables that are not of "
                                                "migration.only_types cannot stay as they are: {}",
                                                Message(listed))),
      FailureReason::kConstraintsConflict);
}

}  // namespace neuroshard
