#include "server/evaluate/check_constraints.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "common/base/bytes.h"
#include "common/domain/held_shards.h"
#include "common/domain/shard_layout.h"
#include "common/domain/table_names.h"
#include "server/evaluate/migration_report.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/evaluate/rules/list_text.h"

namespace neuroshard {
namespace {

bool Names(const std::vector<int>& ascending, int value) {
  return std::ranges::binary_search(ascending, value);
}

bool Lists(const std::vector<ShardingType>& types, ShardingType type) {
  return std::ranges::find(types, type) != types.end();
}

// Which demand; its path is made only when there is something to say.
struct DemandName {
  const char* field;
  std::optional<std::size_t> rule = std::nullopt;  // none: the field is one of Constraints itself

  std::string Path() const {
    return rule.has_value() ? fmt::format("constraints.tables[{}].{}", *rule, field)
                            : fmt::format("constraints.{}", field);
  }
};

class ConstraintChecker {
 public:
  ConstraintChecker(const PlanRequest& request, const Plan& plan,
                    const std::vector<PlacedShard>& shards, Violations& violations)
      : request_(request),
        constraints_(request.constraints),
        plan_(plan),
        shards_(shards),
        violations_(violations),
        rules_(request, TypeSet::All()),
        names_(request.tables),
        in_place_(TablesInPlace(request)),
        rules_of_table_(request.tables.size()),
        shards_of_table_(request.tables.size()) {
    for (std::size_t r = 0; r < constraints_.tables.size(); ++r) {
      for (const int table : constraints_.tables[r].tables) {
        rules_of_table_[static_cast<std::size_t>(table)].push_back(r);
      }
    }
    for (const PlacedShard& shard : shards) shards_of_table_[shard.table].push_back(&shard);
  }

  void Run() {
    for (std::size_t begin = 0; begin < shards_.size();) {
      std::size_t end = begin;
      while (end < shards_.size() && shards_[end].entry == shards_[begin].entry) ++end;
      CheckTable(std::span(shards_).subspan(begin, end - begin));
      begin = end;
    }
    for (std::size_t g = 0; g < constraints_.colocate.size(); ++g) CheckColocated(g);
    for (std::size_t g = 0; g < constraints_.separate.size(); ++g) CheckSeparate(g);
    CheckRankLimits();
    CheckMigration();
  }

 private:
  using Entry = std::span<const PlacedShard>;  // shards of one entry of the plan

  const TablePlan& PlanOf(const PlacedShard& shard) const { return plan_.tables[shard.entry]; }
  const Shard& At(const PlacedShard& shard) const { return PlanOf(shard).shards[shard.index]; }
  template <typename... Args>
  void Add(const PlacedShard& shard, const char* field, fmt::format_string<Args...> text,
           Args&&... args) {
    violations_.Add(fmt::format("plan.tables[{}].shards[{}].{}", shard.entry, shard.index, field),
                    text, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void AddToTable(const PlacedShard& shard, const char* field, fmt::format_string<Args...> text,
                  Args&&... args) {
    violations_.Add(fmt::format("plan.tables[{}].{}", shard.entry, field), text,
                    std::forward<Args>(args)...);
  }
  int Unit(GroupLevel level, const PlacedShard& shard) const {
    const int rank = At(shard).rank;
    return level == GroupLevel::kRank ? rank : rules_.host_of(rank);
  }

  void CheckTable(Entry entry) {
    const PlacedShard& first = entry.front();
    const TablePlan& plan = PlanOf(first);
    const auto& rules = rules_of_table_[first.table];
    bool types_named = false;
    for (const std::size_t r : rules) {
      const TableRule& rule = constraints_.tables[r];
      types_named = types_named || !rule.sharding_types.empty();
      CheckType(first, rule.sharding_types, DemandName{"sharding_types", r});
      if (!rule.compute_kernels.empty() && !rule.lists(plan.compute_kernel)) {
        AddToTable(first, "compute_kernel", "must be one of {} ({}), got {}",
                   ListText(rule.compute_kernels), DemandName{"compute_kernels", r}.Path(),
                   ToText(plan.compute_kernel));
      }
      if (rule.cache_load_factor != 0 && HasCache(plan.compute_kernel) &&
          plan.cache_load_factor != rule.cache_load_factor) {
        AddToTable(first, "cache_load_factor", "must be {} ({}), got {}", rule.cache_load_factor,
                   DemandName{"cache_load_factor", r}.Path(), plan.cache_load_factor);
      }
      if (rule.row_multiple > 0 && CutsRows(plan.sharding_type) &&
          plan.sharding_type != ShardingType::kRowWise) {
        AddToTable(first, "sharding_type",
                   "cuts rows as no table in buckets can be ({}): row_wise does, got {}",
                   DemandName{"row_multiple", r}.Path(), ToText(plan.sharding_type));
      }
      CheckProportion(first, rules, r);
      CheckCount(first, rule.max_shards, DemandName{"max_shards", r});
      CheckWidths(entry, rule.min_column_width, DemandName{"min_column_width", r});
      CheckRanks(entry, r);
      if (rule.distinct_ranks) CheckDistinct(entry, DemandName{"distinct_ranks", r});
    }
    if (!types_named) {
      CheckType(first, constraints_.sharding_types, DemandName{"sharding_types"});
    }
    CheckCount(first, constraints_.max_shards_per_table, DemandName{"max_shards_per_table"});
    CheckWidths(entry, constraints_.min_column_width, DemandName{"min_column_width"});
    CheckKernels(entry);
    CheckColumnRule(entry);
    CheckInPlace(first);
  }

  // Checks the proportion that rule `r` asks for; the sizes of blocks are checked by CheckLayout.
  void CheckProportion(const PlacedShard& first, const std::vector<std::size_t>& rules,
                       std::size_t r) {
    const auto proportion = constraints_.tables[r].row_proportion;
    const ShardingType type = PlanOf(first).sharding_type;
    if (!proportion || !CutsRows(type)) return;
    const std::string path = DemandName{"row_proportion", r}.Path();
    if (type != ShardingType::kRowWise) {
      AddToTable(first, "sharding_type",
                 "cuts rows evenly, not in proportion to {} ({}): row_wise does, got {}",
                 ToText(*proportion), path, ToText(type));
      return;
    }
    for (const std::size_t other : rules) {
      const auto before = constraints_.tables[other].row_proportion;
      if (other == r) return;
      if (!before || before == proportion) continue;
      AddToTable(first, "sharding_type",
                 "cannot be row_wise with rows in proportion to {} ({}) and to {} ({})",
                 ToText(*before), DemandName{"row_proportion", other}.Path(), ToText(*proportion),
                 path);
      return;
    }
  }

  // Migration::only_types.
  void CheckInPlace(const PlacedShard& first) {
    const TablePlan* before = in_place_[first.table];
    if (before == nullptr || request_.migration->only_types.empty()) return;
    const std::vector<ShardingType>& only_types = request_.migration->only_types;
    const TablePlan& plan = PlanOf(first);
    const auto must_be = [&](const char* field, bool same, const auto& expected, const auto& got) {
      if (same) return;
      AddToTable(first, field,
                 "must stay {} as in migration.previous (migration.only_types), got {}", expected,
                 got);
    };
    must_be("sharding_type", plan.sharding_type == before->sharding_type,
            ToText(before->sharding_type), ToText(plan.sharding_type));
    must_be("compute_kernel", plan.compute_kernel == before->compute_kernel,
            ToText(before->compute_kernel), ToText(plan.compute_kernel));
    must_be("cache_load_factor", plan.cache_load_factor == before->cache_load_factor,
            before->cache_load_factor, plan.cache_load_factor);
    if (Lists(only_types, before->sharding_type) || plan.shards == before->shards) return;
    AddToTable(first, "shards",
               "must stay as in migration.previous: only tables that are {} there may "
               "change place (migration.only_types)",
               ListText(only_types));
  }

  void CheckType(const PlacedShard& first, const std::vector<ShardingType>& types,
                 DemandName demand) {
    const ShardingType type = PlanOf(first).sharding_type;
    if (types.empty() || Lists(types, type)) return;
    AddToTable(first, "sharding_type", "must be one of {} ({}), got {}", ListText(types),
               demand.Path(), ToText(type));
  }

  void CheckCount(const PlacedShard& first, int most, DemandName demand) {
    const std::size_t count = PlanOf(first).shards.size();
    if (most == 0 || count <= static_cast<std::size_t>(most)) return;
    AddToTable(first, "shards", "must be at most {} ({}), got {}", most, demand.Path(), count);
  }

  void CheckWidths(Entry entry, std::int64_t least, DemandName demand) {
    const std::int64_t dim = request_.tables[entry.front().table].embedding_dim;
    for (const PlacedShard& shard : entry) {
      const std::int64_t cols = At(shard).cols;
      if (cols >= least || cols == dim) continue;
      Add(shard, "cols", "must be at least {} ({}), got {}", least, demand.Path(), cols);
    }
  }

  void CheckKernels(Entry entry) {
    const KernelLimits& limits = request_.kernels();
    for (const PlacedShard& shard : entry) {
      if (At(shard).cols <= limits.max_columns) continue;
      Add(shard, "cols",
          "must be at most {}, which is what {} takes (topology.compute_device), got {}",
          limits.max_columns, limits.kernels, At(shard).cols);
    }
  }

  void CheckColumnRule(Entry entry) {
    const std::int64_t width = rules_.of(static_cast<int>(entry.front().table)).column_block;
    if (constraints_.column_rule != ColumnRule::kTorchRec) return;
    for (const PlacedShard& shard : entry) {
      if (!CutsColumns(PlanOf(shard).sharding_type) || At(shard).cols == width) continue;
      Add(shard, "cols", "must be {}, TorchRec's one block width (constraints.column_rule), got {}",
          width, At(shard).cols);
    }
  }

  void CheckRanks(Entry entry, std::size_t r) {
    const TableRule& rule = constraints_.tables[r];
    for (const PlacedShard& shard : entry) {
      const int rank = At(shard).rank;
      const int host = rules_.host_of(rank);
      if (!rule.ranks.empty() && !Names(rule.ranks, rank)) {
        Add(shard, "rank", "must be one of {} ({}), got {}", ListText(rule.ranks),
            DemandName{"ranks", r}.Path(), rank);
      }
      if (Names(rule.forbidden_ranks, rank)) {
        Add(shard, "rank", "must not be {} ({})", rank, DemandName{"forbidden_ranks", r}.Path());
      }
      if (!rule.hosts.empty() && !Names(rule.hosts, host)) {
        Add(shard, "rank", "must be on one of hosts {} ({}), got {} of host {}",
            ListText(rule.hosts), DemandName{"hosts", r}.Path(), rank, host);
      }
      if (Names(rule.forbidden_hosts, host)) {
        Add(shard, "rank", "must not be on host {} ({}), got {}", host,
            DemandName{"forbidden_hosts", r}.Path(), rank);
      }
    }
  }

  void CheckDistinct(Entry entry, DemandName demand) {
    std::unordered_map<int, std::size_t> first_on;
    for (const PlacedShard& shard : entry) {
      const auto [first, is_first] = first_on.emplace(At(shard).rank, shard.index);
      if (is_first) continue;
      Add(shard, "rank", "must be another than that of shards[{}] ({}), got {}", first->second,
          demand.Path(), At(shard).rank);
    }
  }

  void CheckColocated(std::size_t g) {
    const TableGroup& group = constraints_.colocate[g];
    const PlacedShard* first = nullptr;
    for (const int table : group.tables) {
      for (const PlacedShard* shard : shards_of_table_[static_cast<std::size_t>(table)]) {
        if (first == nullptr) first = shard;
        const int expected = Unit(group.level, *first);
        const int unit = Unit(group.level, *shard);
        if (unit == expected) continue;
        Add(*shard, "rank", "must be on {} {}, where '{}' is (constraints.colocate[{}]), got {}",
            ToText(group.level), expected, names_.ReferenceTo(static_cast<int>(first->table)), g,
            At(*shard).rank);
      }
    }
  }

  void CheckSeparate(std::size_t g) {
    const TableGroup& group = constraints_.separate[g];
    std::unordered_map<int, const PlacedShard*> first_on;
    for (const int table : group.tables) {
      for (const PlacedShard* shard : shards_of_table_[static_cast<std::size_t>(table)]) {
        const int unit = Unit(group.level, *shard);
        const auto [first, is_first] = first_on.emplace(unit, shard);
        if (is_first || first->second->table == shard->table) continue;
        Add(*shard, "rank",
            "must not be on {} {}, where '{}' is (constraints.separate[{}]), got {}",
            ToText(group.level), unit, names_.ReferenceTo(static_cast<int>(first->second->table)),
            g, At(*shard).rank);
      }
    }
  }

  void CheckRankLimits() {
    std::vector<int> shards_on(request_.topology.devices.size());
    std::vector<int> tables_on(request_.topology.devices.size());
    std::vector<std::size_t> last_entry(request_.topology.devices.size(), plan_.tables.size());
    for (const PlacedShard& shard : shards_) {
      const std::size_t rank = static_cast<std::size_t>(At(shard).rank);
      ++shards_on[rank];
      if (last_entry[rank] != shard.entry) ++tables_on[rank];
      last_entry[rank] = shard.entry;
    }
    CheckLimit(shards_on, constraints_.max_shards_per_rank, "shards", "max_shards_per_rank");
    CheckLimit(tables_on, constraints_.max_tables_per_rank, "tables", "max_tables_per_rank");
  }

  void CheckLimit(const std::vector<int>& counts, int most, const char* what, const char* field) {
    if (most == 0) return;
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      if (counts[rank] <= most) continue;
      violations_.Add("plan.tables", "rank {} has {} {}, must have at most {} (constraints.{})",
                      rank, counts[rank], what, most, field);
    }
  }

  void CheckMigration() {
    if (!request_.migration.has_value() || !request_.migration->budget_bytes.has_value()) return;
    const std::int64_t budget = *request_.migration->budget_bytes;
    const MigrationReport report = ReportMigration(request_, plan_);
    if (report.moved_bytes <= budget) return;
    violations_.Add(
        "plan.tables",
        "moves {} bytes ({}), '{}' first, must move at most {} (migration.budget_bytes)",
        report.moved_bytes, FormatBytes(report.moved_bytes), report.tables.front().table, budget);
  }

  const PlanRequest& request_;
  const Constraints& constraints_;
  const Plan& plan_;
  const std::vector<PlacedShard>& shards_;
  Violations& violations_;
  const CompiledRules rules_;
  const TableNames names_;
  const std::vector<const TablePlan*> in_place_;
  std::vector<std::vector<std::size_t>> rules_of_table_;
  std::vector<std::vector<const PlacedShard*>> shards_of_table_;
};

}  // namespace

void CheckConstraints(const PlanRequest& request, const Plan& plan,
                      const std::vector<PlacedShard>& shards, Violations& violations) {
  if (request.constraints.empty() && !request.migration.has_value() &&
      request.too_wide_tables().empty()) {
    return;
  }
  ConstraintChecker(request, plan, shards, violations).Run();
}

}  // namespace neuroshard
