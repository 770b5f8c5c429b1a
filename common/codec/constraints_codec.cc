#include "common/codec/constraints_codec.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string_view>

#include "common/codec/field_check.h"
#include "common/codec/message_fields.h"
#include "common/domain/shard_layout.h"
#include "common/domain/table_names.h"

namespace neuroshard {

// But for tables, which have names there.
NS_FIELDS(TableRule, sharding_types, compute_kernels, ranks, forbidden_ranks, hosts,
          forbidden_hosts, max_shards, min_column_width, distinct_ranks, row_multiple,
          row_proportion);
NS_FIELDS(Constraints, sharding_types, max_shards_per_rank, max_tables_per_rank,
          max_shards_per_table, min_column_width, column_rule);

namespace {

constexpr std::int64_t kMaxCount = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxColumns = 65536;

// Where a value that may be listed once was first listed.
template <typename T>
class ListedOnce {
 public:
  ListedOnce(const FieldCheck& check, std::string_view field) : check_(check), field_(field) {}

  // Whether it is new; a violation at position `i` otherwise.
  bool Note(const T& value, int i) {
    const auto [first, is_new] = first_.emplace(value, i);
    if (!is_new) {
      check_.Fail(fmt::format("{}[{}]", field_, i), "is given twice, first at {}[{}]", field_,
                  first->second);
    }
    return is_new;
  }

 private:
  const FieldCheck& check_;
  const std::string_view field_;
  std::map<T, int> first_;
};

template <typename E, typename Words>
std::vector<E> DecodeWords(const FieldCheck& check, std::string_view field, const Words& words) {
  std::vector<E> values;
  ListedOnce<E> once(check, field);
  for (int i = 0; i < words.size(); ++i) {
    const std::optional<E> value = FromText<E>(words[i]);
    if (!value) {
      check.Fail(fmt::format("{}[{}]", field, i), NotAWord<E>(words[i]));
    } else if (once.Note(*value, i)) {
      values.push_back(*value);
    }
  }
  std::ranges::sort(values);
  return values;
}

class ConstraintsDecoder {
 public:
  ConstraintsDecoder(const std::vector<Table>& tables, const Topology& topology)
      : topology_(topology),
        num_ranks_(topology.num_ranks()),
        num_hosts_(static_cast<int>(topology.hosts().size())),
        tables_(tables),
        names_(tables) {}

  Constraints Decode(const v1::Constraints& message, const FieldCheck& check) const {
    Constraints constraints;
    constraints.sharding_types =
        DecodeWords<ShardingType>(check, "sharding_types", message.sharding_types());
    for (int i = 0; i < message.tables_size(); ++i) {
      constraints.tables.push_back(DecodeRule(message.tables(i), check.In("tables", i)));
    }
    constraints.colocate = DecodeGroups(message.colocate(), check, "colocate");
    constraints.separate = DecodeGroups(message.separate(), check, "separate");
    constraints.max_shards_per_rank =
        DecodeCount(check, "max_shards_per_rank", message.max_shards_per_rank());
    constraints.max_tables_per_rank =
        DecodeCount(check, "max_tables_per_rank", message.max_tables_per_rank());
    constraints.max_shards_per_table =
        DecodeCount(check, "max_shards_per_table", message.max_shards_per_table());
    check.InRange("min_column_width", message.min_column_width(), 0, kMaxColumns);
    constraints.min_column_width = message.min_column_width();
    constraints.column_rule =
        check.WordOrDefault("column_rule", message.column_rule(), ColumnRule::kAny);
    return constraints;
  }

 private:
  static int DecodeCount(const FieldCheck& check, std::string_view field, std::int32_t count) {
    check.InRange(field, std::int64_t{count}, 0, kMaxCount);
    return count;
  }

  TableRule DecodeRule(const v1::TableRule& message, const FieldCheck& check) const {
    TableRule rule;
    rule.tables = DecodeTables(check, message.tables());
    if (message.tables_size() == 0) check.Fail("tables", "must name at least one table");
    rule.sharding_types =
        DecodeWords<ShardingType>(check, "sharding_types", message.sharding_types());
    rule.compute_kernels =
        DecodeWords<ComputeKernel>(check, "compute_kernels", message.compute_kernels());
    rule.ranks = DecodeIndices(check, "ranks", message.ranks(), num_ranks_);
    rule.forbidden_ranks =
        DecodeIndices(check, "forbidden_ranks", message.forbidden_ranks(), num_ranks_);
    rule.hosts = DecodeIndices(check, "hosts", message.hosts(), num_hosts_);
    rule.forbidden_hosts =
        DecodeIndices(check, "forbidden_hosts", message.forbidden_hosts(), num_hosts_);
    rule.max_shards = DecodeCount(check, "max_shards", message.max_shards());
    check.InRange("min_column_width", message.min_column_width(), 0, kMaxColumns);
    rule.min_column_width = message.min_column_width();
    rule.distinct_ranks = message.distinct_ranks();
    if (message.has_cache_load_factor() &&
        check.IsPositiveShare("cache_load_factor", message.cache_load_factor())) {
      rule.cache_load_factor = message.cache_load_factor();
    }
    rule.row_multiple = DecodeRowMultiple(check, message.row_multiple(), rule.tables);
    if (!message.row_proportion().empty()) {
      rule.row_proportion =
          check.WordOf("row_proportion", message.row_proportion(), RowProportion::kMemory);
    }
    CheckKernels(check, message, rule);
    if (DemandsNothing(message)) {
      check.Fail("",
                 "demands nothing: give sharding_types, compute_kernels, ranks, forbidden_ranks, "
                 "hosts, forbidden_hosts, max_shards, min_column_width, distinct_ranks, "
                 "cache_load_factor, row_multiple or row_proportion");
    }
    return rule;
  }

  std::int64_t DecodeRowMultiple(const FieldCheck& check, std::int64_t multiple,
                                 const std::vector<int>& tables) const {
    check.InRange("row_multiple", multiple, 0, std::numeric_limits<std::int64_t>::max());
    if (multiple <= 0) return 0;
    for (const int table : tables) {
      const std::int64_t rows = At(tables_, table).num_embeddings;
      if (rows % multiple == 0) continue;
      check.Fail("row_multiple", "must divide the {} rows of '{}', got {}", rows,
                 names_.ReferenceTo(table), multiple);
    }
    return multiple;
  }

  // Kernels of memories that tables are in only where asked for: hosts have to have them, and FBGEMM
  // to have such tables.
  void CheckKernels(const FieldCheck& check, const v1::TableRule& message,
                    const TableRule& rule) const {
    const auto& kernels = message.compute_kernels();
    for (const KernelTraits& of : kKernelTraits) {
      const auto listed = std::ranges::find(kernels, ToText(of.kernel));
      if (listed == kernels.end() || !IsOnlyWhereListed(of.tier)) continue;
      const SharedMemory& memory = SharedMemoryOf(of.tier);
      const std::string field = fmt::format("compute_kernels[{}]", listed - kernels.begin());
      if (num_ranks_ > 0 && !Leaves(memory, rule)) {
        check.Fail(field, "is {}, and no host that the rule leaves has {} (topology.hosts[].{})",
                   ToText(of.kernel), memory.name, memory.field);
      }
      for (const int t : rule.tables) {
        if (of.tier == MemoryTier::kSsd) CheckOnSsd(check, field, t);
      }
    }
  }

  void CheckOnSsd(const FieldCheck& check, const std::string& field, int t) const {
    const Table& table = At(tables_, t);
    if (!CanBeOnSsd(table.weight_dtype)) {
      check.Fail(field, "is key_value, which FBGEMM has for fp32 and fp16; '{}' is {}",
                 names_.ReferenceTo(t), ToText(table.weight_dtype));
    }
    if (table.l2_cache_bytes > 0 && num_ranks_ > 0 && topology_.host_memory_bytes.empty()) {
      check.Fail(field,
                 "is key_value, and no host has memory (topology.hosts[].host_memory_bytes) for "
                 "the l2_cache_bytes of '{}'",
                 names_.ReferenceTo(t));
    }
  }

  // Whether a rank that the rule allows is on a host with some of the memory.
  bool Leaves(const SharedMemory& memory, const TableRule& rule) const {
    const std::vector<std::int64_t>& of_hosts = topology_.*memory.of_hosts;
    const auto allows = [](const std::vector<int>& only, const std::vector<int>& never, int value) {
      return (only.empty() || std::ranges::binary_search(only, value)) &&
             !std::ranges::binary_search(never, value);
    };
    for (int rank = 0; rank < num_ranks_ && !of_hosts.empty(); ++rank) {
      const int host = At(topology_.devices, rank).host;
      if (At(of_hosts, host) > 0 && allows(rule.ranks, rule.forbidden_ranks, rank) &&
          allows(rule.hosts, rule.forbidden_hosts, host)) {
        return true;
      }
    }
    return false;
  }

  static bool DemandsNothing(v1::TableRule rule) {
    rule.clear_tables();
    rule.DiscardUnknownFields();
    return rule.ByteSizeLong() == 0;
  }

  template <typename Groups>
  std::vector<TableGroup> DecodeGroups(const Groups& messages, const FieldCheck& of_all,
                                       std::string_view field) const {
    std::vector<TableGroup> groups;
    for (int i = 0; i < messages.size(); ++i) {
      const FieldCheck check = of_all.In(field, i);
      TableGroup group;
      group.tables = DecodeTables(check, messages[i].tables());
      if (messages[i].tables_size() < 2) {
        check.Fail("tables", "must name at least two tables, got {}", messages[i].tables_size());
      }
      group.level = check.WordOrDefault("level", messages[i].level(), GroupLevel::kRank);
      groups.push_back(std::move(group));
    }
    return groups;
  }

  template <typename Names>
  std::vector<int> DecodeTables(const FieldCheck& check, const Names& names) const {
    std::vector<int> tables;
    ListedOnce<int> once(check, "tables");
    for (int i = 0; i < names.size(); ++i) {
      const int table = names_.Resolve(names[i]);
      if (table < 0) {
        check.Fail(fmt::format("tables[{}]", i), names_.WhyUnresolved(names[i]));
      } else if (once.Note(table, i)) {
        tables.push_back(table);
      }
    }
    std::ranges::sort(tables);
    return tables;
  }

  // Ranks or hosts of the topology, of which there are `count`; 0: it is not known.
  template <typename Indices>
  static std::vector<int> DecodeIndices(const FieldCheck& check, std::string_view field,
                                        const Indices& indices, int count) {
    std::vector<int> values;
    ListedOnce<int> once(check, field);
    for (int i = 0; i < indices.size(); ++i) {
      const int value = indices[i];
      if (count > 0 && (value < 0 || value >= count)) {
        check.Fail(fmt::format("{}[{}]", field, i),
                   "must be from 0 to {}, what the topology has, got {}", count - 1, value);
      } else if (once.Note(value, i)) {
        values.push_back(value);
      }
    }
    std::ranges::sort(values);
    return values;
  }

  const Topology& topology_;
  const int num_ranks_;
  const int num_hosts_;
  const std::vector<Table>& tables_;
  const TableNames names_;
};

template <typename Message>
void EncodeTables(const std::vector<int>& indices, const TableNames& names, Message& message) {
  for (const int index : indices) message.add_tables(names.ReferenceTo(index));
}

v1::TableRule EncodeRule(const TableRule& rule, const TableNames& names) {
  v1::TableRule message;
  EncodeTables(rule.tables, names, message);
  PutFields(rule, message);
  if (rule.cache_load_factor > 0) message.set_cache_load_factor(rule.cache_load_factor);
  return message;
}

// Why a rule's cache_load_factor changes nothing; empty: it may.
std::string_view WhyNoCache(const TableRule& rule, const Topology& topology) {
  const auto& kernels = rule.compute_kernels;
  if (!kernels.empty() && std::ranges::none_of(kernels, HasCache)) {
    return "changes nothing: compute_kernels lists no kernel with a cache";
  }
  return topology.host_memory_bytes.empty() ? "changes nothing: no host has host_memory_bytes" : "";
}

// Why a rule's row_proportion leaves rows as even as they are without it; empty: it may not.
std::string_view WhyEvenRows(const TableRule& rule, const Topology& topology) {
  const auto& types = rule.sharding_types;
  if (!types.empty() && std::ranges::none_of(types, CutsRows)) {
    return "changes nothing: sharding_types lists none that cuts rows";
  }
  const auto all_have = [&](auto Device::*field) {
    return std::ranges::all_of(topology.devices, [&](const Device& device) {
      return device.*field == topology.devices.front().*field;
    });
  };
  if (rule.row_proportion == RowProportion::kMemory) {
    return all_have(&Device::memory_bytes) ? "gives even blocks: all devices have as much memory"
                                           : "";
  }
  return all_have(&Device::compute_speed) ? "gives even blocks: all hosts have one compute_speed"
                                          : "";
}

v1::TableGroup EncodeGroup(const TableGroup& group, const TableNames& names) {
  v1::TableGroup message;
  EncodeTables(group.tables, names, message);
  message.set_level(std::string(ToText(group.level)));
  return message;
}

}  // namespace

std::int64_t CountConstraintEntries(const v1::Constraints& message) {
  std::int64_t entries = message.tables_size() + message.colocate_size() + message.separate_size() +
                         message.sharding_types_size();
  for (const v1::TableRule& rule : message.tables()) {
    entries += std::int64_t{rule.tables_size()} + rule.sharding_types_size() +
               rule.compute_kernels_size() + rule.ranks_size() + rule.forbidden_ranks_size() +
               rule.hosts_size() + rule.forbidden_hosts_size();
  }
  for (const v1::TableGroup& group : message.colocate()) entries += group.tables_size();
  for (const v1::TableGroup& group : message.separate()) entries += group.tables_size();
  return entries;
}

Constraints DecodeConstraints(const v1::Constraints& message, const std::vector<Table>& tables,
                              const Topology& topology, Violations& violations) {
  return ConstraintsDecoder(tables, topology)
      .Decode(message, FieldCheck("constraints", violations));
}

std::vector<std::string> ConstraintWarnings(const PlanRequest& request) {
  constexpr Optimizer kOnSsd[] = {Optimizer::kRowwiseAdagrad, Optimizer::kPartialRowwiseAdam,
                                  Optimizer::kAdam};
  std::vector<std::string> warnings;
  std::vector<bool> on_ssd(request.tables.size());
  for (std::size_t i = 0; i < request.constraints.tables.size(); ++i) {
    const TableRule& rule = request.constraints.tables[i];
    const auto lists = [&](ComputeKernel kernel) {
      return std::ranges::find(rule.compute_kernels, kernel) != rule.compute_kernels.end();
    };
    const bool key_value = lists(ComputeKernel::kKeyValue);
    std::set<Optimizer> others;
    for (const int table : rule.tables) {
      if (!key_value) break;
      At(on_ssd, table) = true;
      others.insert(request.optimizer_of(At(request.tables, table)));
    }
    for (const Optimizer trained : kOnSsd) others.erase(trained);
    others.erase(Optimizer::kNone);
    for (const Optimizer optimizer : others) {
      warnings.push_back(fmt::format(
          "constraints.tables[{}].compute_kernels lists key_value, which FBGEMM trains with "
          "rowwise_adagrad, partial_rowwise_adam and adam alone; the tables' optimizer is {}",
          i, ToText(optimizer)));
    }
    const auto add = [&](std::string_view field, std::string_view why) {
      if (!why.empty())
        warnings.push_back(fmt::format("constraints.tables[{}].{} {}", i, field, why));
    };
    if (rule.cache_load_factor != 0 && !key_value) {
      add("cache_load_factor", WhyNoCache(rule, request.topology));
    }
    if (rule.row_proportion) add("row_proportion", WhyEvenRows(rule, request.topology));
  }
  const bool in_place = request.migration.has_value() && request.may_use(MemoryTier::kSsd);
  for (std::size_t t = 0; t < request.tables.size() && !in_place; ++t) {
    const Table& table = request.tables[t];
    if (on_ssd[t] || (!table.max_l1_cache_bytes && table.l2_cache_bytes == 0)) continue;
    const auto warn = [&](bool given, std::string_view field) {
      if (!given) return;
      warnings.push_back(fmt::format(
          "tables[{}].{} counts for key_value alone, which no rule lists for the table", t, field));
    };
    warn(table.max_l1_cache_bytes.has_value(), "max_l1_cache_bytes");
    warn(table.l2_cache_bytes != 0, "l2_cache_bytes");
  }
  return warnings;
}

v1::Constraints EncodeConstraints(const Constraints& constraints,
                                  const std::vector<Table>& tables) {
  const TableNames names(tables);
  auto message = MessageOf<v1::Constraints>(constraints);
  for (const TableRule& rule : constraints.tables) {
    *message.add_tables() = EncodeRule(rule, names);
  }
  for (const TableGroup& group : constraints.colocate) {
    *message.add_colocate() = EncodeGroup(group, names);
  }
  for (const TableGroup& group : constraints.separate) {
    *message.add_separate() = EncodeGroup(group, names);
  }
  return message;
}

}  // namespace neuroshard
