#include "server/evaluate/rules/demands.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <string_view>
#include <type_traits>
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
  std::string_view name;             // in TableRule
  std::string_view words;            // for a person: "only ranks {}"
  bool (*is_set)(const TableRule&);  // whether the rule demands it
  std::string (*text)(const TableRule&, std::string_view words);
  void (*copy)(const TableRule& from, TableRule& to);
};

template <auto field>
bool IsSet(const TableRule& rule) {
  return rule.*field != TableRule().*field;
}

template <auto field>
std::string FieldText(const TableRule& rule, std::string_view words) {
  const auto& value = rule.*field;
  if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(value)>>) {
    return fmt::format(fmt::runtime(words), value);
  } else if constexpr (requires { value.has_value(); }) {
    return fmt::format(fmt::runtime(words), ToText(*value));
  } else {
    return fmt::format(fmt::runtime(words), ListText(value));
  }
}

template <auto field>
void Copy(const TableRule& from, TableRule& to) {
  to.*field = from.*field;
}

template <auto field>
constexpr RuleField FieldOf(std::string_view name, std::string_view words) {
  return {name, words, &IsSet<field>, &FieldText<field>, &Copy<field>};
}

// All fields of TableRule but `tables`.
constexpr std::array kRuleFields = {
    FieldOf<&TableRule::sharding_types>("sharding_types", "only {}"),
    FieldOf<&TableRule::compute_kernels>("compute_kernels", "only kernel {}"),
    FieldOf<&TableRule::ranks>("ranks", "only ranks {}"),
    FieldOf<&TableRule::forbidden_ranks>("forbidden_ranks", "not ranks {}"),
    FieldOf<&TableRule::hosts>("hosts", "only hosts {}"),
    FieldOf<&TableRule::forbidden_hosts>("forbidden_hosts", "not hosts {}"),
    FieldOf<&TableRule::max_shards>("max_shards", "at most {} shards"),
    FieldOf<&TableRule::min_column_width>("min_column_width", "at least {} columns a shard"),
    FieldOf<&TableRule::distinct_ranks>("distinct_ranks", "shards on distinct ranks"),
    FieldOf<&TableRule::cache_load_factor>("cache_load_factor", "a cache of {} of the rows"),
    FieldOf<&TableRule::row_multiple>("row_multiple", "rows in buckets of {}"),
    FieldOf<&TableRule::row_proportion>("row_proportion", "rows in proportion to {}"),
};

// More than any request can need, and safe to add up.
constexpr std::int64_t kAnyMemory = std::int64_t{1} << 60;

std::string MemoryOf(const PlanRequest& request) {
  std::int64_t available = 0, reserved = 0;
  for (const Device& device : request.topology.devices) {
    const std::int64_t reserve = ReserveBytes(request.memory, device.memory_bytes);
    available += std::max<std::int64_t>(0, device.memory_bytes - reserve);
    reserved += std::min(device.memory_bytes, reserve);
  }
  const TierBytes shared = SharedBytes(request.topology);
  std::string text = fmt::format("{} for shards on {} ranks", FormatBytes(available),
                                 request.topology.num_ranks());
  if (reserved > 0) text += fmt::format(" beside a reserve of {}", FormatBytes(reserved));
  std::string unused;
  for (const SharedMemory& memory : kSharedMemories) {
    if (shared[memory.tier] == 0) continue;
    if (request.may_use(memory.tier)) {
      text += fmt::format(" and {} of {}", FormatBytes(shared[memory.tier]), memory.amount);
    } else {
      unused += fmt::format(
          "; {} are for tables whose rule lists {}, which none does", memory.name,
          ToText(std::ranges::find(kKernelTraits, memory.tier, &KernelTraits::tier)->kernel));
    }
  }
  return text + unused;
}

}  // namespace

Demands::Demands(const PlanRequest& request, TypeSet default_types, std::vector<int> tables)
    : request_(request), default_types_(default_types), tables_(std::move(tables)) {
  ListRules();
  ListRequestDemands();
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
      if (kRuleFields[f].is_set(rule)) demands_.push_back({r, f});
    }
    if (rule.sharding_types.empty()) continue;
    for (const int table : rule.tables) typed[static_cast<std::size_t>(table)] = true;
  }
  for (const int table : tables_) {
    if (!typed[static_cast<std::size_t>(table)]) untyped_tables_.push_back(table);
  }
}

void Demands::ListRequestDemands() {
  const Constraints& from = request_.constraints;
  const auto add_groups =
      [&](std::string_view field, std::vector<TableGroup> Constraints::*groups,
          std::string (*text)(std::string_view tables, std::string_view level)) {
        for (std::size_t g = 0; g < (from.*groups).size(); ++g) {
          const TableGroup* group = &(from.*groups)[g];
          if (Renumbered(group->tables).empty()) continue;
          AddRequestDemand(
              fmt::format("constraints.{}[{}]", field, g),
              [=, this] { return text(Names(group->tables), ToText(group->level)); },
              [=, this](PlanRequest& to) {
                (to.constraints.*groups).push_back({Renumbered(group->tables), group->level});
              });
        }
      };
  add_groups("colocate", &Constraints::colocate,
             [](std::string_view tables, std::string_view level) {
               return fmt::format("{} on one {}", tables, level);
             });
  add_groups("separate", &Constraints::separate,
             [](std::string_view tables, std::string_view level) {
               return fmt::format("no {} with two of {}", level, tables);
             });
  ListTypes();
  const auto add_limit = [&](std::string_view field, int Constraints::*most, const char* what) {
    const int limit = from.*most;
    if (limit <= 0) return;
    AddRequestDemand(
        fmt::format("constraints.{}", field),
        [=] { return fmt::format("at most {} {}", limit, what); },
        [=](PlanRequest& to) { to.constraints.*most = limit; });
  };
  add_limit("max_shards_per_rank", &Constraints::max_shards_per_rank, "shards a rank");
  add_limit("max_tables_per_rank", &Constraints::max_tables_per_rank, "tables a rank");
  add_limit("max_shards_per_table", &Constraints::max_shards_per_table, "shards a table");
  if (from.column_rule != ColumnRule::kAny) {
    AddRequestDemand(
        "constraints.column_rule", [] { return "TorchRec's one width of column blocks a table"; },
        [this](PlanRequest& to) { KeepColumnRule(to.constraints); });
  } else if (const std::int64_t width = from.min_column_width; width > 0 && WidthsAreDemands()) {
    AddRequestDemand(
        "constraints.min_column_width",
        [=] { return fmt::format("at least {} columns a shard", width); },
        [=](PlanRequest& to) { to.constraints.min_column_width = width; });
  }
  if (request_.migration.has_value() && request_.migration->budget_bytes.has_value()) {
    const std::int64_t budget = *request_.migration->budget_bytes;
    AddRequestDemand(
        "migration.budget_bytes", [=] { return fmt::format("at most {} bytes move", budget); },
        [=, this](PlanRequest& to) { KeepMigration(to).budget_bytes = budget; });
  }
  if (request_.migration.has_value() && !request_.migration->only_types.empty()) {
    AddRequestDemand(
        "migration.only_types",
        [this] {
          return fmt::format("only tables in place as {} may change place",
                             ListText(request_.migration->only_types));
        },
        [this](PlanRequest& to) { KeepMigration(to).only_types = request_.migration->only_types; });
  }
  if (!TooWideTables().empty()) {
    AddRequestDemand(
        "topology.compute_device",
        [this] {
          const KernelLimits& limits = request_.kernels();
          return fmt::format("{} takes at most {} columns a shard of {}", limits.kernels,
                             limits.max_columns, Names(TooWideTables()));
        },
        [this](PlanRequest& to) { to.topology.compute_device = request_.topology.compute_device; });
  }
  AddRequestDemand(
      "topology", [this] { return MemoryOf(request_); },
      [this](PlanRequest& to) {
        to.topology.devices = request_.topology.devices;
        for (const SharedMemory& memory : kSharedMemories) {
          to.topology.*memory.of_hosts = request_.topology.*memory.of_hosts;
        }
        to.memory = request_.memory;
      });
}

void Demands::ListTypes() {
  const std::vector<ShardingType>& named = request_.constraints.sharding_types;
  const TypeSet allowed = named.empty() ? default_types_ : TypeSet(named);
  if (untyped_tables_.empty() || (named.empty() && default_types_ == TypeSet::All())) return;
  const std::vector<ShardingType> types = allowed.values();
  AddRequestDemand(
      named.empty() ? "cost_model" : "constraints.sharding_types",
      [this, types] {
        const std::vector<ShardingType>& in_request = request_.constraints.sharding_types;
        if (!in_request.empty()) return "only " + ListText(in_request);
        return fmt::format("only {}, unless constraints.sharding_types names others",
                           ListText(types));
      },
      [this, types](PlanRequest& to) {
        // As a rule, so that it does not reach tables whose own rule on types was dropped.
        TableRule& rule = to.constraints.tables.emplace_back();
        rule.tables = Renumbered(untyped_tables_);
        rule.sharding_types = types;
      });
}

void Demands::AddRequestDemand(std::string path, std::function<std::string()> text,
                               std::function<void(PlanRequest&)> keep) {
  demands_.push_back({request_demands_.size()});
  request_demands_.push_back({std::move(path), std::move(text), std::move(keep)});
}

std::string Demands::Path(std::size_t f) const {
  const auto& [index, field] = demands_[f];
  if (!field) return request_demands_[index].path;
  return fmt::format("constraints.tables[{}].{}", index, kRuleFields[*field].name);
}

std::string Demands::Text(std::size_t f) const {
  const auto& [index, field] = demands_[f];
  if (!field) return request_demands_[index].text();
  const TableRule& rule = request_.constraints.tables[index];
  const RuleField& of = kRuleFields[*field];
  return fmt::format("{} for {}", of.text(rule, of.words), Names(rule.tables));
}

std::string Demands::Names(const std::vector<int>& tables) const {
  return ListText(TableNames(request_.tables).ReferencesTo(tables));
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
  request.pipeline_type = request_.pipeline_type;
  request.memory.rule = request_.memory.rule;
  request.topology = request_.topology;
  request.topology.compute_device.reset();
  for (Device& device : request.topology.devices) device.memory_bytes = kAnyMemory;
  for (const SharedMemory& memory : kSharedMemories) {
    for (Device& device : request.topology.devices) device.*memory.most = 0;
    for (std::int64_t& bytes : request.topology.*memory.of_hosts) {
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
    const auto& [index, field] = demands_[f];
    if (!field) {
      request_demands_[index].keep(request);
      continue;
    }
    const TableRule& rule = request_.constraints.tables[index];
    if (last_rule != index) {
      request.constraints.tables.emplace_back().tables = Renumbered(rule.tables);
    }
    last_rule = index;
    kRuleFields[*field].copy(rule, request.constraints.tables.back());
  }
  KeepRowWeights(request_, request);
  KeepListed(kept, request);
  return request;
}

void Demands::KeepListed(const std::vector<std::size_t>& kept, PlanRequest& request) const {
  const auto is_listed = [&](ComputeKernel kernel) {
    const KernelTraits& of = TraitsOf(kernel);
    return of.only_where_listed && !(request_.topology.*SharedMemoryOf(of.tier).of_hosts).empty();
  };
  const auto allow = [&](std::vector<int> tables) {
    if (tables.empty()) return;
    TableRule& rule = request.constraints.tables.emplace_back();
    rule.tables = std::move(tables);
    rule.compute_kernels = KernelSet::All().values();
  };
  std::set<std::size_t> kept_rules;  // whose kernels are demanded
  for (const std::size_t f : kept) {
    const auto& [index, field] = demands_[f];
    if (field && kRuleFields[*field].name == "compute_kernels") kept_rules.insert(index);
  }
  for (std::size_t r = 0; r < request_.constraints.tables.size(); ++r) {
    const TableRule& rule = request_.constraints.tables[r];
    if (std::ranges::any_of(rule.compute_kernels, is_listed) && !kept_rules.contains(r)) {
      allow(Renumbered(rule.tables));
    }
  }
  if (!request_.migration.has_value()) return;
  const std::vector<const TablePlan*> in_place = TablesInPlace(request_);
  std::vector<int> there;
  for (std::size_t t = 0; t < in_place.size(); ++t) {
    if (in_place[t] != nullptr && is_listed(in_place[t]->compute_kernel)) {
      there.push_back(static_cast<int>(t));
    }
  }
  allow(Renumbered(there));
}

std::vector<int> Demands::TooWideTables() const {
  const std::vector<int> all = request_.too_wide_tables();
  std::vector<int> wide;
  std::ranges::set_intersection(all, tables_, std::back_inserter(wide));
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

std::vector<std::size_t> MinimalSet(
    std::size_t count, const std::function<bool(const std::vector<std::size_t>&)>& shows) {
  std::vector<std::size_t> kept = Positions(count);
  const auto leave_out = [&](std::size_t chunk) {
    bool any = false;
    for (std::size_t begin = 0; begin < kept.size();) {
      const auto first = kept.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto last = first + static_cast<std::ptrdiff_t>(std::min(chunk, kept.size() - begin));
      std::vector<std::size_t> without(kept.begin(), first);
      without.insert(without.end(), last, kept.end());
      if (shows(without)) {
        kept = std::move(without);
        any = true;
      } else {
        begin += chunk;
      }
    }
    return any;
  };
  for (std::size_t chunk = count / 2; chunk > 1; chunk /= 2) leave_out(chunk);
  while (leave_out(1)) {
  }
  return kept;
}

}  // namespace neuroshard
