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
NS_SPARSE_FIELDS(TablePlan, cache_load_factor);
NS_FIELDS(MemoryUse, input_bytes, output_bytes, reserve_bytes, stashed_bytes);
NS_FIELDS(Migration, budget_bytes, price_ms_per_gib, only_types);
NS_FIELDS(PlanCost, embedding_cost_ms, interval_coverage, interval, mean_of_max_ms, exchanges);
NS_SPARSE_FIELDS(PlanCost, measured_with);
NS_FIELDS(RankCost, compute_ms, forward_compute_ms, backward_compute_ms, forward_comm_ms,
          backward_comm_ms, start_offset_ms, dim_sum, input_dist_ms);
NS_FIELDS(TablePlan, name, module, sharding_type, compute_kernel, kind);
template <>
inline constexpr std::tuple kFields<RankIntervals> = {
    NamedMember{"compute_interval", &RankIntervals::compute},
    NamedMember{"forward_compute_interval", &RankIntervals::forward_compute},
    NamedMember{"backward_compute_interval", &RankIntervals::backward_compute},
    NamedMember{"forward_comm_interval", &RankIntervals::forward_comm},
    NamedMember{"backward_comm_interval", &RankIntervals::backward_comm},
    NamedMember{"total_interval", &RankIntervals::total},
    NamedMember{"input_dist_interval", &RankIntervals::input_dist}};

namespace {

// Costs and what measured them: nothing of them is a word or has a range.
template <typename T, typename Message>
T TakeCost(const Message& message) {
  return TakeFields<T>(message, FieldCheck());
}

constexpr std::int64_t kMaxRank =
    (std::int64_t{1} << 26) - 1;  // hosts x devices a request can have
constexpr FieldRange kMigrationRanges[] = {{"budget_bytes", 0, std::int64_t{1} << 60},
                                           {"price_ms_per_gib", 0, 1e9}};

constexpr double kMaxMs = std::numeric_limits<double>::max();
constexpr FieldRange kPlanCosts[] = {{"embedding_cost_ms", 0, kMaxMs},
                                     {"mean_of_max_ms", 0, kMaxMs}};
constexpr FieldRange kRankCosts[] = {{"input_dist_ms", 0, kMaxMs},
                                     {"compute_ms", 0, kMaxMs},
                                     {"forward_compute_ms", 0, kMaxMs},
                                     {"backward_compute_ms", 0, kMaxMs},
                                     {"forward_comm_ms", 0, kMaxMs},
                                     {"backward_comm_ms", 0, kMaxMs},
                                     {"total_ms", 0, kMaxMs}};

Shard DecodeShard(const v1::Shard& message, const FieldCheck& check) {
  check.InRange("row_offset", message.row_offset(), 0, kMaxExtent);
  check.InRange("rows", message.rows(), 0, kMaxExtent);
  check.InRange("col_offset", message.col_offset(), 0, kMaxExtent);
  check.InRange("cols", message.cols(), 0, kMaxExtent);
  check.InRange("rank", std::int64_t{message.rank()}, 0, kMaxRank);
  return {message.row_offset(), message.rows(), message.col_offset(), message.cols(),
          message.rank()};
}

// The fields of v1::MemoryUse with the bytes of one memory, and of v1::PlanCost with its use by host,
// where hosts have it.
template <typename Field>
struct MemoryFields {
  MemoryTier tier;
  Field weights, optimizer, caches, total, by_host;
};
constexpr MemoryFields<const char*> kMemoryFields[] = {
    {MemoryTier::kDevice, "weights_bytes", "optimizer_bytes", "cache_state_bytes", "total_bytes",
     ""},
    {MemoryTier::kHost, "host_weights_bytes", "host_optimizer_bytes", "host_cache_bytes",
     "host_total_bytes", "host_memory"},
    {MemoryTier::kSsd, "ssd_weights_bytes", "ssd_optimizer_bytes", "ssd_cache_state_bytes",
     "ssd_total_bytes", "ssd"}};
static_assert(std::size(kMemoryFields) == kWords<MemoryTier>.size());

// The fields of those names; null where there is none.
const std::vector<MemoryFields<const FieldDescriptor*>>& FieldsOfMemories() {
  static const auto fields =
      Mapped(std::span(kMemoryFields), [](const MemoryFields<const char*>& of) {
        const auto& use = *v1::MemoryUse::descriptor();
        return MemoryFields<const FieldDescriptor*>{
            of.tier,
            use.FindFieldByName(of.weights),
            use.FindFieldByName(of.optimizer),
            use.FindFieldByName(of.caches),
            use.FindFieldByName(of.total),
            v1::PlanCost::descriptor()->FindFieldByName(of.by_host)};
      });
  return fields;
}

MemoryUse DecodeMemoryUse(const v1::MemoryUse& message) {
  auto use = TakeCost<MemoryUse>(message);
  for (const auto& [tier, weights, optimizer, caches, total, by_host] : FieldsOfMemories()) {
    use.weights[tier] = TakeField<std::int64_t>(message, weights);
    use.optimizer[tier] = TakeField<std::int64_t>(message, optimizer);
    use.caches[tier] = TakeField<std::int64_t>(message, caches);
  }
  return use;
}

void DecodeCacheLoadFactor(const v1::TablePlan& message, const FieldCheck& check, TablePlan& plan) {
  const bool caches = HasCache(plan.compute_kernel);
  if (!message.has_cache_load_factor()) {
    plan.cache_load_factor = caches ? kDefaultCacheLoadFactor : 0;
  } else if (!caches) {
    plan.cache_load_factor = 0;
    check.Fail("cache_load_factor",
               "is for compute_kernel \"fused_uvm_caching\" or \"key_value\" alone, got \"{}\"",
               ToText(plan.compute_kernel));
  } else {
    check.IsPositiveShare("cache_load_factor", plan.cache_load_factor);
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
  const FieldCheck of_plan(path, violations);
  CheckRanges<kPlanCosts>(message, of_plan);
  for (int i = 0; i < message.ranks_size(); ++i) {
    CheckRanges<kRankCosts>(message.ranks(i), of_plan.In("ranks", i));
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
  auto migration = TakeFields<Migration>(message, check);
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
  CheckRanges<kMigrationRanges>(message, check);
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
    for (const auto& [tier, weights, optimizer, caches, total, by_host] : FieldsOfMemories()) {
      PutField(weights, use.weights[tier], memory);
      PutField(optimizer, use.optimizer[tier], memory);
      PutField(caches, use.caches[tier], memory);
      PutField(total, all[tier], memory);
    }
    memory.set_capacity_bytes(rank.capacity_bytes);
    PutFields(rank.intervals, encoded);
  }
  for (const auto& of : FieldsOfMemories()) {
    if (of.by_host != nullptr) PutField(of.by_host, cost.shared[of.tier], message);
  }
  return message;
}

MeasuredWith DecodeMeasuredWith(const v1::MeasuredWith& message) {
  return TakeCost<MeasuredWith>(message);
}

PlanCost DecodePlanCost(const v1::PlanCost& message) {
  auto cost = TakeCost<PlanCost>(message);
  for (const v1::RankCost& encoded : message.ranks()) {
    auto rank = TakeCost<RankCost>(encoded);
    rank.memory = DecodeMemoryUse(encoded.memory());
    rank.capacity_bytes = encoded.memory().capacity_bytes();
    rank.intervals = TakeCost<RankIntervals>(encoded);
    if (rank.input_dist_ms) {
      // So that no rounding of other writers matters.
      const double more_ms = encoded.total_ms() - rank.total_ms();
      rank.input_dist_hidden = !(more_ms > *rank.input_dist_ms / 2);
    }
    cost.ranks.push_back(rank);
  }
  for (const auto& of : FieldsOfMemories()) {
    if (of.by_host == nullptr) continue;
    cost.shared[of.tier] = TakeField<std::vector<HostMemoryUse>>(message, of.by_host);
  }
  return cost;
}

}  // namespace neuroshard
