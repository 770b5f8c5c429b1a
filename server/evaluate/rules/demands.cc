#include "server/evaluate/rules/demands.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/bytes.h"
#include "common/base/positions.h"
#include "common/domain/held_shards.h"
#include "common/domain/memory_pools.h"
#include "common/domain/memory_use.h"
#include "common/domain/table_names.h"
#include "server/evaluate/rules/list_text.h"
#include "server/evaluate/rules/row_cuts.h"

namespace neuroshard {
namespace {

// One field of a TableRule: whether it is set, its text, and how to copy it alone.
struct RuleField {
  std::string_view name;                  // in TableRule
  bool (*is_set)(const TableRule&);       // whether the rule demands it
  std::string (*says)(const TableRule&);  // for a person: "only ranks 0, 1"
  void (*copy)(const TableRule& from, TableRule& to);
};

using Says = std::string (*)(const TableRule&);

template <auto field>
bool IsSet(const TableRule& rule) {
  using Field = std::remove_cvref_t<decltype(rule.*field)>;
  if constexpr (std::is_arithmetic_v<Field>) {
    return rule.*field != 0;
  } else if constexpr (requires(const Field& value) { value.has_value(); }) {
    return (rule.*field).has_value();
  } else {
    return !(rule.*field).empty();
  }
}

template <auto field>
void Copy(const TableRule& from, TableRule& to) {
  to.*field = from.*field;
}

template <auto field>
constexpr RuleField FieldOf(std::string_view name, Says says) {
  return {name, &IsSet<field>, says, &Copy<field>};
}

// All fields of TableRule but `tables`.
constexpr std::array kRuleFields = {
    FieldOf<&TableRule::sharding_types>(
        "sharding_types",
        [](const TableRule& rule) { return "only " + ListText(rule.sharding_types); }),
    FieldOf<&TableRule::compute_kernels>(
        "compute_kernels",
        [](const TableRule& rule) { return "only kernel " + ListText(rule.compute_kernels); }),
    FieldOf<&TableRule::ranks>(
        "ranks", [](const TableRule& rule) { return "only ranks " + ListText(rule.ranks); }),
    FieldOf<&TableRule::forbidden_ranks>(
        "forbidden_ranks",
        [](const TableRule& rule) { return "not ranks " + ListText(rule.forbidden_ranks); }),
    FieldOf<&TableRule::hosts>(
        "hosts", [](const TableRule& rule) { return "only hosts " + ListText(rule.hosts); }),
    FieldOf<&TableRule::forbidden_hosts>(
        "forbidden_hosts",
        [](const TableRule& rule) { return "not hosts " + ListText(rule.forbidden_hosts); }),
    FieldOf<&TableRule::max_shards>(
        "max_shards",
        [](const TableRule& rule) { return fmt::format("at most {} shards", rule.max_shards); }),
    FieldOf<&TableRule::min_column_width>("min_column_width",
                                          [](const TableRule& rule) {
                                            return fmt::format("at least {} columns a shard",
                                                               rule.min_column_width);
                                          }),
    FieldOf<&TableRule::distinct_ranks>(
        "distinct_ranks", [](const TableRule&) { return std::string("shards on distinct ranks"); }),
    FieldOf<&TableRule::cache_load_factor>("cache_load_factor",
                                           [](const TableRule& rule) {
                                             return fmt::format("a cache of {} of the rows",
                                                                rule.cache_load_factor);
                                           }),
    FieldOf<&TableRule::row_multiple>("row_multiple",
                                      [](const TableRule& rule) {
                                        return fmt::format("rows in buckets of {}",
                                                           rule.row_multiple);
                                      }),
    FieldOf<&TableRule::row_proportion>("row_proportion",
                                        [](const TableRule& rule) {
                                          return fmt::format("rows in proportion to {}",
                                                             ToText(*rule.row_proportion));
                                        }),
};

// More than any request can need, and safe to add up.
constexpr std::int64_t kAnyMemory = std::int64_t{1} << 60;

}  // namespace

Demands::Demands(const PlanRequest& request, TypeSet default_types, std::vector<int> tables)
    : request_(request), default_types_(default_types), tables_(std::move(tables)) {
  ListRules();
  ListOthers();
}

Demands::Demands(const PlanRequest& request, TypeSet default_types)
    : Demands(request, default_types, Positions<int>(request.tables.size())) {}

void Demands::ListRules() {
  const Constraints& constraints = request_.constraints;
  const bool widths = WidthsAreDemands();
  std::vector<bool> typed(request_.tables.size());
  for (std::size_t r = 0; r < constraints.tables.size(); ++r) {
    const TableRule& rule = constraints.tables[r];
    if (Renumbered(rule.tables).empty()) continue;
    for (std::size_t f = 0; f < kRuleFields.size(); ++f) {
      if (kRuleFields[f].name == "min_column_width" && !widths) continue;
      if (kRuleFields[f].is_set(rule)) demands_.push_back({Kind::kRuleField, r, f});
    }
    if (rule.sharding_types.empty()) continue;
    for (const int table : rule.tables) typed[static_cast<std::size_t>(table)] = true;
  }
  for (const int table : tables_) {
    if (!typed[static_cast<std::size_t>(table)]) untyped_tables_.push_back(table);
  }
}

void Demands::ListOthers() {
  const Constraints& constraints = request_.constraints;
  const auto add_groups = [&](const std::vector<TableGroup>& groups, Kind kind) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (!Renumbered(groups[g].tables).empty()) demands_.push_back({kind, g});
    }
  };
  add_groups(constraints.colocate, Kind::kColocate);
  add_groups(constraints.separate, Kind::kSeparate);
  const bool all_types = constraints.sharding_types.empty() && default_types_ == TypeSet::All();
  if (!untyped_tables_.empty() && !all_types) demands_.push_back({Kind::kTypes});
  if (constraints.max_shards_per_rank > 0) demands_.push_back({Kind::kMaxShardsPerRank});
  if (constraints.max_tables_per_rank > 0) demands_.push_back({Kind::kMaxTablesPerRank});
  if (constraints.max_shards_per_table > 0) demands_.push_back({Kind::kMaxShardsPerTable});
  if (constraints.column_rule != ColumnRule::kAny) {
    demands_.push_back({Kind::kColumnRule});
  } else if (constraints.min_column_width > 0 && WidthsAreDemands()) {
    demands_.push_back({Kind::kMinColumnWidth});
  }
  if (request_.migration.has_value() && request_.migration->budget_bytes.has_value()) {
    demands_.push_back({Kind::kBudget});
  }
  if (request_.migration.has_value() && !request_.migration->only_types.empty()) {
    demands_.push_back({Kind::kOnlyTypes});
  }
  if (!TooWideTables().empty()) demands_.push_back({Kind::kKernels});
  demands_.push_back({Kind::kMemory});
}

std::string Demands::Path(std::size_t f) const {
  const Demand& demand = demands_[f];
  switch (demand.kind) {
    case Kind::kRuleField:
      return fmt::format("constraints.tables[{}].{}", demand.index, kRuleFields[demand.field].name);
    case Kind::kColocate:
      return fmt::format("constraints.colocate[{}]", demand.index);
    case Kind::kSeparate:
      return fmt::format("constraints.separate[{}]", demand.index);
    case Kind::kTypes:
      return request_.constraints.sharding_types.empty() ? "cost_model"
                                                         : "constraints.sharding_types";
    case Kind::kMaxShardsPerRank:
      return "constraints.max_shards_per_rank";
    case Kind::kMaxTablesPerRank:
      return "constraints.max_tables_per_rank";
    case Kind::kMaxShardsPerTable:
      return "constraints.max_shards_per_table";
    case Kind::kMinColumnWidth:
      return "constraints.min_column_width";
    case Kind::kColumnRule:
      return "constraints.column_rule";
    case Kind::kBudget:
      return "migration.budget_bytes";
    case Kind::kOnlyTypes:
      return "migration.only_types";
    case Kind::kKernels:
      return "topology.compute_device";
    case Kind::kMemory:
      return "topology";
  }
  return "";
}

std::string Demands::Says(std::size_t f) const {
  const Demand& demand = demands_[f];
  const Constraints& constraints = request_.constraints;
  const auto names = [&](const std::vector<int>& tables) {
    return ListText(TableNames(request_.tables).ReferencesTo(tables));
  };
  switch (demand.kind) {
    case Kind::kRuleField: {
      const TableRule& rule = constraints.tables[demand.index];
      return fmt::format("{} for {}", kRuleFields[demand.field].says(rule), names(rule.tables));
    }
    case Kind::kColocate: {
      const TableGroup& group = constraints.colocate[demand.index];
      return fmt::format("{} on one {}", names(group.tables), ToText(group.level));
    }
    case Kind::kSeparate: {
      const TableGroup& group = constraints.separate[demand.index];
      return fmt::format("no {} with two of {}", ToText(group.level), names(group.tables));
    }
    case Kind::kTypes: {
      if (!constraints.sharding_types.empty())
        return "only " + ListText(constraints.sharding_types);
      std::vector<ShardingType> types;
      for (const auto& word : kWords<ShardingType>) {
        if (default_types_.contains(word.value)) types.push_back(word.value);
      }
      return fmt::format("only {}, unless constraints.sharding_types names others",
                         ListText(types));
    }
    case Kind::kMaxShardsPerRank:
      return fmt::format("at most {} shards a rank", constraints.max_shards_per_rank);
    case Kind::kMaxTablesPerRank:
      return fmt::format("at most {} tables a rank", constraints.max_tables_per_rank);
    case Kind::kMaxShardsPerTable:
      return fmt::format("at most {} shards a table", constraints.max_shards_per_table);
    case Kind::kMinColumnWidth:
      return fmt::format("at least {} columns a shard", constraints.min_column_width);
    case Kind::kColumnRule:
      return "TorchRec's one width of column blocks a table";
    case Kind::kBudget:
      return fmt::format("at most {} bytes move", *request_.migration->budget_bytes);
    case Kind::kOnlyTypes:
      return fmt::format("only tables in place as {} may change place",
                         ListText(request_.migration->only_types));
    case Kind::kKernels: {
      const KernelLimits& limits = request_.kernels();
      return fmt::format("{} takes at most {} columns a shard of {}", limits.kernels,
                         limits.max_columns, names(TooWideTables()));
    }
    case Kind::kMemory: {
      std::int64_t available = 0, reserved = 0;
      for (const Device& device : request_.topology.devices) {
        const std::int64_t reserve = ReserveBytes(request_.memory, device.memory_bytes);
        available += std::max<std::int64_t>(0, device.memory_bytes - reserve);
        reserved += std::min(device.memory_bytes, reserve);
      }
      const TierBytes shared = SharedBytes(request_.topology);
      std::string text = fmt::format("{} for shards on {} ranks", FormatBytes(available),
                                     request_.topology.num_ranks());
      if (reserved > 0) text += fmt::format(" beside a reserve of {}", FormatBytes(reserved));
      for (const SharedMemory& memory : kSharedMemories) {
        if (shared[memory.tier] == 0) continue;
        if (memory.tier == MemoryTier::kSsd && !request_.may_use_ssd()) {
          return text + "; SSDs are for tables whose rule lists key_value, which none does";
        }
        text += fmt::format(" and {} of {}", FormatBytes(shared[memory.tier]), memory.amount);
      }
      return text;
    }
  }
  return "";
}

std::vector<int> Demands::Renumbered(const std::vector<int>& tables) const {
  std::vector<int> positions;
  for (const int table : tables) {
    const auto at = std::lower_bound(tables_.begin(), tables_.end(), table);
    if (at != tables_.end() && *at == table) {
      positions.push_back(static_cast<int>(at - tables_.begin()));
    }
  }
  return positions;
}

PlanRequest Demands::With(const std::vector<std::size_t>& kept) const {
  PlanRequest request;
  request.global_batch_size = request_.global_batch_size;
  request.optimizer = request_.optimizer;
  request.memory.rule = request_.memory.rule;
  request.topology = request_.topology;
  request.topology.compute_device.reset();
  for (Device& device : request.topology.devices) {
    device.memory_bytes = kAnyMemory;
    device.max_host_memory_bytes = 0;
    device.max_ssd_bytes = 0;
  }
  for (auto* of_hosts : {&request.topology.host_memory_bytes, &request.topology.ssd_bytes}) {
    for (std::int64_t& bytes : *of_hosts) {
      if (bytes > 0) bytes = kAnyMemory;
    }
  }
  for (const int table : tables_) {
    request.tables.push_back(request_.tables[static_cast<std::size_t>(table)]);
  }
  if (!WidthsAreDemands() && request_.constraints.column_rule == ColumnRule::kAny) {
    KeepColumnRule(request.constraints);
  }
  // Fields of one rule follow each other, and become one rule again.
  std::optional<std::size_t> last_rule;
  for (const std::size_t f : kept) {
    const Demand& demand = demands_[f];
    if (demand.kind != Kind::kRuleField) {
      Keep(demand, request);
      continue;
    }
    const TableRule& rule = request_.constraints.tables[demand.index];
    if (last_rule != demand.index) {
      request.constraints.tables.emplace_back().tables = Renumbered(rule.tables);
    }
    last_rule = demand.index;
    kRuleFields[demand.field].copy(rule, request.constraints.tables.back());
  }
  KeepRowWeights(request_, request);
  KeepSsd(kept, request);
  return request;
}

void Demands::KeepSsd(const std::vector<std::size_t>& kept, PlanRequest& request) const {
  if (!request_.may_use_ssd()) return;
  std::vector<ComputeKernel> any;
  for (const auto& word : kWords<ComputeKernel>) any.push_back(word.value);
  const auto allow = [&](std::vector<int> tables) {
    if (tables.empty()) return;
    TableRule& rule = request.constraints.tables.emplace_back();
    rule.tables = std::move(tables);
    rule.compute_kernels = any;
  };
  std::set<std::size_t> kept_rules;  // whose kernels are demanded
  for (const std::size_t f : kept) {
    const Demand& demand = demands_[f];
    if (demand.kind == Kind::kRuleField && kRuleFields[demand.field].name == "compute_kernels") {
      kept_rules.insert(demand.index);
    }
  }
  for (std::size_t r = 0; r < request_.constraints.tables.size(); ++r) {
    const TableRule& rule = request_.constraints.tables[r];
    if (rule.lists(ComputeKernel::kKeyValue) && !kept_rules.contains(r)) {
      allow(Renumbered(rule.tables));
    }
  }
  if (!request_.migration.has_value()) return;
  const std::vector<const TablePlan*> in_place = TablesInPlace(request_);
  std::vector<int> on_ssd;
  for (std::size_t t = 0; t < in_place.size(); ++t) {
    if (in_place[t] != nullptr && TierOf(in_place[t]->compute_kernel) == MemoryTier::kSsd) {
      on_ssd.push_back(static_cast<int>(t));
    }
  }
  allow(Renumbered(on_ssd));
}

void Demands::Keep(const Demand& demand, PlanRequest& request) const {
  const Constraints& from = request_.constraints;
  Constraints& to = request.constraints;
  switch (demand.kind) {
    case Kind::kRuleField:  // With sees to these
      return;
    case Kind::kColocate:
      to.colocate.push_back(
          {Renumbered(from.colocate[demand.index].tables), from.colocate[demand.index].level});
      return;
    case Kind::kSeparate:
      to.separate.push_back(
          {Renumbered(from.separate[demand.index].tables), from.separate[demand.index].level});
      return;
    case Kind::kTypes: {
      // As a rule, so that it does not reach tables whose own rule on types was dropped.
      TableRule& rule = to.tables.emplace_back();
      rule.tables = Renumbered(untyped_tables_);
      for (const auto& word : kWords<ShardingType>) {
        const TypeSet types =
            from.sharding_types.empty() ? default_types_ : TypeSet(from.sharding_types);
        if (types.contains(word.value)) rule.sharding_types.push_back(word.value);
      }
      return;
    }
    case Kind::kMaxShardsPerRank:
      to.max_shards_per_rank = from.max_shards_per_rank;
      return;
    case Kind::kMaxTablesPerRank:
      to.max_tables_per_rank = from.max_tables_per_rank;
      return;
    case Kind::kMaxShardsPerTable:
      to.max_shards_per_table = from.max_shards_per_table;
      return;
    case Kind::kMinColumnWidth:
      to.min_column_width = from.min_column_width;
      return;
    case Kind::kColumnRule:
      KeepColumnRule(to);
      return;
    case Kind::kBudget:
      KeepMigration(request).budget_bytes = request_.migration->budget_bytes;
      return;
    case Kind::kOnlyTypes:
      KeepMigration(request).only_types = request_.migration->only_types;
      return;
    case Kind::kKernels:
      request.topology.compute_device = request_.topology.compute_device;
      return;
    case Kind::kMemory:
      request.topology.devices = request_.topology.devices;
      request.topology.host_memory_bytes = request_.topology.host_memory_bytes;
      request.topology.ssd_bytes = request_.topology.ssd_bytes;
      request.memory = request_.memory;
      return;
  }
}

std::vector<int> Demands::TooWideTables() const {
  const std::vector<int> all = request_.too_wide_tables();
  std::vector<int> wide;
  std::set_intersection(all.begin(), all.end(), tables_.begin(), tables_.end(),
                        std::back_inserter(wide));
  return wide;
}

Migration& Demands::KeepMigration(PlanRequest& request) const {
  if (!request.migration.has_value()) {
    request.migration.emplace().previous = request_.migration->previous;
  }
  return *request.migration;
}

bool Demands::WidthsAreDemands() const {
  return request_.constraints.column_rule == ColumnRule::kAny && !request_.has_unpooled_tables();
}

void Demands::KeepColumnRule(Constraints& to) const {
  const Constraints& from = request_.constraints;
  to.column_rule = from.column_rule;
  to.min_column_width = from.min_column_width;
  for (const TableRule& rule : from.tables) {
    if (rule.min_column_width == 0) continue;
    std::vector<int> tables = Renumbered(rule.tables);
    if (tables.empty()) continue;
    TableRule& width = to.tables.emplace_back();
    width.tables = std::move(tables);
    width.min_column_width = rule.min_column_width;
  }
}

}  // namespace neuroshard
