#include "common/codec/plan_codec.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/codec/field_check.h"
#include "common/codec/field_limits.h"
#include "common/codec/message_fields.h"
#include "common/codec/table_codec.h"
#include "common/domain/table_names.h"
#include "common/domain/tiling.h"

namespace neuroshard {

NS_FIELDS(CostInterval, low_ms, high_ms);
NS_FIELDS(ExchangeCost, module, sharding_type, time_ms);
NS_FIELDS(HostMemoryUse, host, total_bytes, capacity_bytes);
NS_FIELDS(MeasuredWith, device, backend, collective_backend);
NS_FIELDS(MemoryUse, input_bytes, output_bytes, reserve_bytes, stashed_bytes);
NS_FIELDS(Migration, budget_bytes, price_ms_per_gib, only_types);
NS_FIELDS(PlanCost, embedding_cost_ms, interval_coverage, mean_of_max_ms, exchanges);
NS_FIELDS(RankCost, compute_ms, forward_compute_ms, backward_compute_ms, forward_comm_ms,
          backward_comm_ms, start_offset_ms, dim_sum, input_dist_ms);
NS_FIELDS(TablePlan, name, module, sharding_type, compute_kernel, kind);

namespace {

// Costs and what measured them: nothing of them is a word or has a range.
template <typename T, typename Message>
T TakeCost(const Message& message) {
  Violations none;
  return TakeFields<T>(message, FieldCheck("", none));
}

constexpr std::int64_t kMaxRank =
    (std::int64_t{1} << 26) - 1;  // hosts x devices a request can have
constexpr std::int64_t kMaxBudgetBytes = std::int64_t{1} << 60;
constexpr double kMaxPriceMs = 1e9;

Shard DecodeShard(const v1::Shard& message, const FieldCheck& check) {
  check.InRange("row_offset", message.row_offset(), 0, kMaxExtent);
  check.InRange("rows", message.rows(), 0, kMaxExtent);
  check.InRange("col_offset", message.col_offset(), 0, kMaxExtent);
  check.InRange("cols", message.cols(), 0, kMaxExtent);
  check.InRange("rank", std::int64_t{message.rank()}, 0, kMaxRank);
  return {message.row_offset(), message.rows(), message.col_offset(), message.cols(),
          message.rank()};
}

// Sets what `mutable_interval` makes, if there is anything to set.
void Put(const std::optional<CostInterval>& interval, v1::RankCost& rank,
         v1::CostInterval* (v1::RankCost::*mutable_interval)()) {
  if (!interval.has_value()) return;
  PutFields(*interval, *(rank.*mutable_interval)());
}

std::optional<CostInterval> IntervalIf(bool present, const v1::CostInterval& message) {
  if (!present) return std::nullopt;
  return TakeCost<CostInterval>(message);
}

void EncodeIntervals(const RankIntervals& of, v1::RankCost& rank) {
  Put(of.compute, rank, &v1::RankCost::mutable_compute_interval);
  Put(of.forward_compute, rank, &v1::RankCost::mutable_forward_compute_interval);
  Put(of.backward_compute, rank, &v1::RankCost::mutable_backward_compute_interval);
  Put(of.forward_comm, rank, &v1::RankCost::mutable_forward_comm_interval);
  Put(of.backward_comm, rank, &v1::RankCost::mutable_backward_comm_interval);
  Put(of.total, rank, &v1::RankCost::mutable_total_interval);
  Put(of.input_dist, rank, &v1::RankCost::mutable_input_dist_interval);
}

RankIntervals DecodeIntervals(const v1::RankCost& rank) {
  return {IntervalIf(rank.has_compute_interval(), rank.compute_interval()),
          IntervalIf(rank.has_forward_compute_interval(), rank.forward_compute_interval()),
          IntervalIf(rank.has_backward_compute_interval(), rank.backward_compute_interval()),
          IntervalIf(rank.has_forward_comm_interval(), rank.forward_comm_interval()),
          IntervalIf(rank.has_backward_comm_interval(), rank.backward_comm_interval()),
          IntervalIf(rank.has_total_interval(), rank.total_interval()),
          IntervalIf(rank.has_input_dist_interval(), rank.input_dist_interval())};
}

// The fields of v1::MemoryUse with the bytes of one memory.
struct BytesField {
  std::int64_t (v1::MemoryUse::*get)() const;
  void (v1::MemoryUse::*set)(std::int64_t);
};
struct MemoryFields {
  MemoryTier tier;
  BytesField weights, optimizer, caches, total;
};
#define NS_BYTES(name) \
  { &v1::MemoryUse::name##_bytes, &v1::MemoryUse::set_##name##_bytes }
constexpr MemoryFields kMemoryFields[] = {
    {MemoryTier::kDevice, NS_BYTES(weights), NS_BYTES(optimizer), NS_BYTES(cache_state),
     NS_BYTES(total)},
    {MemoryTier::kHost, NS_BYTES(host_weights), NS_BYTES(host_optimizer), NS_BYTES(host_cache),
     NS_BYTES(host_total)},
    {MemoryTier::kSsd, NS_BYTES(ssd_weights), NS_BYTES(ssd_optimizer), NS_BYTES(ssd_cache_state),
     NS_BYTES(ssd_total)}};
#undef NS_BYTES
static_assert(std::size(kMemoryFields) == kWords<MemoryTier>.size());

MemoryUse DecodeMemoryUse(const v1::MemoryUse& message) {
  auto use = TakeCost<MemoryUse>(message);
  for (const auto& [tier, weights, optimizer, caches, total] : kMemoryFields) {
    use.weights[tier] = (message.*weights.get)();
    use.optimizer[tier] = (message.*optimizer.get)();
    use.caches[tier] = (message.*caches.get)();
  }
  return use;
}

using HostMemoryUses = google::protobuf::RepeatedPtrField<v1::HostMemoryUse>;

void EncodeUses(const std::vector<HostMemoryUse>& uses, HostMemoryUses& messages) {
  for (const HostMemoryUse& use : uses) PutFields(use, *messages.Add());
}

std::vector<HostMemoryUse> DecodeUses(const HostMemoryUses& messages) {
  return Mapped(messages,
                [&](const v1::HostMemoryUse& use) { return TakeCost<HostMemoryUse>(use); });
}

void DecodeCacheLoadFactor(const v1::TablePlan& message, const FieldCheck& check, TablePlan& plan) {
  const bool caches = HasCache(plan.compute_kernel);
  if (!message.has_cache_load_factor()) {
    plan.cache_load_factor = caches ? kDefaultCacheLoadFactor : 0;
  } else if (!caches) {
    check.Fail("cache_load_factor",
               "is for compute_kernel \"fused_uvm_caching\" or \"key_value\" alone, got \"{}\"",
               ToText(plan.compute_kernel));
  } else if (check.IsPositiveShare("cache_load_factor", message.cache_load_factor())) {
    plan.cache_load_factor = message.cache_load_factor();
  }
}

// A table keeps its kind: pooled and unpooled ones are sharded by different modules.
void CheckKinds(const std::vector<Table>& tables, const v1::Plan& message, const Plan& plan,
                Violations& violations) {
  const std::vector<int> table_of = TablesOf(plan, tables);
  for (std::size_t i = 0; i < table_of.size(); ++i) {
    const auto stated = FromText<TableKind>(message.tables(static_cast<int>(i)).kind());
    if (table_of[i] < 0 || !stated) continue;
    const TableKind kind = tables[static_cast<std::size_t>(table_of[i])].kind;
    if (*stated == kind) continue;
    violations.Add(fmt::format("migration.previous.tables[{}].kind", i),
                   "must be {} as in the request, got {}", ToText(kind), ToText(*stated));
  }
}

void NameAsTables(const std::vector<Table>& tables, Plan& plan) {
  const std::vector<int> table_of = TablesOf(plan, tables);
  for (std::size_t i = 0; i < table_of.size(); ++i) {
    if (table_of[i] < 0) continue;
    const Table& table = tables[static_cast<std::size_t>(table_of[i])];
    plan.tables[i].module = table.module;
    plan.tables[i].name = table.name;
  }
}

}  // namespace

v1::Plan EncodePlan(const Plan& plan) {
  v1::Plan message;
  message.set_world_size(plan.world_size);
  message.set_local_world_size(plan.local_world_size);
  for (const TablePlan& table : plan.tables) {
    v1::TablePlan& encoded = *message.add_tables();
    PutFields(table, encoded);
    if (table.cache_load_factor > 0) encoded.set_cache_load_factor(table.cache_load_factor);
    for (const Shard& shard : table.shards) {
      v1::Shard& piece = *encoded.add_shards();
      piece.set_row_offset(shard.row_offset);
      piece.set_rows(shard.rows);
      piece.set_col_offset(shard.col_offset);
      piece.set_cols(shard.cols);
      piece.set_rank(shard.rank);
    }
  }
  return message;
}

Plan DecodePlanAt(const std::string& path, const v1::Plan& message, Violations& violations) {
  const FieldCheck check(path, violations);
  Plan plan;
  check.InRange("world_size", std::int64_t{message.world_size()}, 0, kMaxRank + 1);
  check.InRange("local_world_size", std::int64_t{message.local_world_size()}, 0, kMaxRank + 1);
  plan.world_size = message.world_size();
  plan.local_world_size = message.local_world_size();
  for (int i = 0; i < message.tables_size(); ++i) {
    const v1::TablePlan& table = message.tables(i);
    const FieldCheck table_check = check.In("tables", i);
    auto decoded = TakeFields<TablePlan>(table, table_check, AbsentWord::kFault);
    table_check.IsNonEmptyText("name", table.name(), kMaxNameBytes);
    table_check.IsText("module", table.module(), kMaxNameBytes);
    DecodeCacheLoadFactor(table, table_check, decoded);
    for (int s = 0; s < table.shards_size(); ++s) {
      decoded.shards.push_back(DecodeShard(table.shards(s), table_check.In("shards", s)));
    }
    plan.tables.push_back(std::move(decoded));
  }
  return plan;
}

StatusOr<Plan> DecodePlan(const v1::Plan& message) {
  Violations violations;
  Plan plan = DecodePlanAt("plan", message, violations);
  NS_RETURN_IF_ERROR(violations.ToStatus());
  return plan;
}

void CheckTilings(const std::string& path, const v1::Plan& message, const Plan& plan,
                  Violations& violations) {
  const auto is_extent = [](std::int64_t value) { return value >= 0 && value <= kMaxExtent; };
  for (int i = 0; i < message.tables_size(); ++i) {
    const v1::TablePlan& table = message.tables(i);
    const bool decoded = FromText<ShardingType>(table.sharding_type()).has_value() &&
                         std::ranges::all_of(table.shards(), [&](const v1::Shard& shard) {
                           return is_extent(shard.row_offset()) && is_extent(shard.rows()) &&
                                  is_extent(shard.col_offset()) && is_extent(shard.cols());
                         });
    if (!decoded) continue;
    CheckTiling(plan.tables[static_cast<std::size_t>(i)], message.world_size(),
                fmt::format("{}.tables[{}]", path, i), violations);
  }
}

void CheckCosts(const std::string& path, const v1::PlanCost& message, Violations& violations) {
  const auto check = [&](const FieldCheck& at, const char* field, double ms) {
    at.InRange(field, ms, 0, std::numeric_limits<double>::max());
  };
  const FieldCheck of_plan(path, violations);
  check(of_plan, "embedding_cost_ms", message.embedding_cost_ms());
  check(of_plan, "mean_of_max_ms", message.mean_of_max_ms());
  for (int i = 0; i < message.ranks_size(); ++i) {
    const v1::RankCost& rank = message.ranks(i);
    const FieldCheck of_rank = of_plan.In("ranks", i);
    check(of_rank, "input_dist_ms", rank.input_dist_ms());
    check(of_rank, "compute_ms", rank.compute_ms());
    check(of_rank, "forward_compute_ms", rank.forward_compute_ms());
    check(of_rank, "backward_compute_ms", rank.backward_compute_ms());
    check(of_rank, "forward_comm_ms", rank.forward_comm_ms());
    check(of_rank, "backward_comm_ms", rank.backward_comm_ms());
    check(of_rank, "total_ms", rank.total_ms());
  }
}

std::int64_t CountShards(const v1::Plan& message) {
  std::int64_t shards = 0;
  for (const v1::TablePlan& table : message.tables()) shards += table.shards_size();
  return shards;
}

Migration DecodeMigration(const v1::Migration& message, const std::vector<Table>& tables,
                          Violations& violations) {
  const FieldCheck check("migration", violations);
  Migration migration;
  if (message.has_previous()) {
    migration.previous = DecodePlanAt("migration.previous", message.previous(), violations);
    CheckUniqueNames(message.previous().tables(), "migration.previous.tables", violations);
    CheckTilings("migration.previous", message.previous(), migration.previous, violations);
    NameAsTables(tables, migration.previous);
    CheckKinds(tables, message.previous(), migration.previous, violations);
    if (migration.previous.tables.empty()) check.Fail("previous", "has no tables");
  } else {
    check.Fail("previous", "is required");
  }
  if (message.has_budget_bytes()) {
    check.InRange("budget_bytes", message.budget_bytes(), 0, kMaxBudgetBytes);
    migration.budget_bytes = message.budget_bytes();
  }
  check.InRange("price_ms_per_gib", message.price_ms_per_gib(), 0.0, kMaxPriceMs);
  migration.price_ms_per_gib = message.price_ms_per_gib();
  for (int i = 0; i < message.only_types_size(); ++i) {
    const std::string field = fmt::format("only_types[{}]", i);
    const std::optional<ShardingType> type = FromText<ShardingType>(message.only_types(i));
    const auto first = std::ranges::find(migration.only_types, type);
    if (!type) {
      check.Fail(field, NotAWord<ShardingType>(message.only_types(i)));
    } else if (first != migration.only_types.end()) {
      check.Fail(field, "lists '{}' twice", message.only_types(i));
    } else {
      migration.only_types.push_back(*type);
    }
  }
  std::ranges::sort(migration.only_types);
  return migration;
}

v1::Migration EncodeMigration(const Migration& migration) {
  v1::Migration message;
  *message.mutable_previous() = EncodePlan(migration.previous);
  PutFields(migration, message);
  return message;
}

v1::CostInterval EncodeInterval(const CostInterval& interval) {
  return MessageOf<v1::CostInterval>(interval);
}

v1::MeasuredWith EncodeMeasuredWith(const MeasuredWith& with) {
  return MessageOf<v1::MeasuredWith>(with);
}

v1::PlanCost EncodePlanCost(const PlanCost& cost) {
  auto message = MessageOf<v1::PlanCost>(cost);
  if (cost.interval) *message.mutable_interval() = EncodeInterval(*cost.interval);
  if (cost.measured_with != MeasuredWith()) {
    *message.mutable_measured_with() = EncodeMeasuredWith(cost.measured_with);
  }
  for (std::size_t i = 0; i < cost.ranks.size(); ++i) {
    const RankCost& rank = cost.ranks[i];
    v1::RankCost& encoded = *message.add_ranks();
    encoded.set_rank(static_cast<std::int32_t>(i));
    PutFields(rank, encoded);
    encoded.set_total_ms(rank.total_ms());
    v1::MemoryUse& memory = *encoded.mutable_memory();
    const MemoryUse& use = rank.memory;
    PutFields(use, memory);
    const TierBytes all = use.by_tier();
    for (const auto& [tier, weights, optimizer, caches, total] : kMemoryFields) {
      (memory.*weights.set)(use.weights[tier]);
      (memory.*optimizer.set)(use.optimizer[tier]);
      (memory.*caches.set)(use.caches[tier]);
      (memory.*total.set)(all[tier]);
    }
    memory.set_capacity_bytes(rank.capacity_bytes);
    EncodeIntervals(rank.intervals, encoded);
  }
  EncodeUses(cost.shared[MemoryTier::kHost], *message.mutable_host_memory());
  EncodeUses(cost.shared[MemoryTier::kSsd], *message.mutable_ssd());
  return message;
}

MeasuredWith DecodeMeasuredWith(const v1::MeasuredWith& message) {
  return TakeCost<MeasuredWith>(message);
}

PlanCost DecodePlanCost(const v1::PlanCost& message) {
  auto cost = TakeCost<PlanCost>(message);
  cost.interval = IntervalIf(message.has_interval(), message.interval());
  cost.measured_with = DecodeMeasuredWith(message.measured_with());
  for (const v1::RankCost& encoded : message.ranks()) {
    auto rank = TakeCost<RankCost>(encoded);
    rank.memory = DecodeMemoryUse(encoded.memory());
    rank.capacity_bytes = encoded.memory().capacity_bytes();
    rank.intervals = DecodeIntervals(encoded);
    if (rank.input_dist_ms) {
      // So that no rounding of other writers matters.
      const double more_ms = encoded.total_ms() - rank.total_ms();
      rank.input_dist_hidden = !(more_ms > *rank.input_dist_ms / 2);
    }
    cost.ranks.push_back(rank);
  }
  cost.shared[MemoryTier::kHost] = DecodeUses(message.host_memory());
  cost.shared[MemoryTier::kSsd] = DecodeUses(message.ssd());
  return cost;
}

}  // namespace neuroshard
