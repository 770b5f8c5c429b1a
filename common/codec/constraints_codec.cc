#include "common/codec/constraints_codec.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "common/codec/field_check.h"
#include "common/codec/message_fields.h"
#include "common/domain/shard_layout.h"
#include "common/domain/table_names.h"

namespace neuroshard {

// But for tables, which have names there.
NS_FIELDS(TableRule, sharding_types, compute_kernels, ranks, forbidden_ranks, hosts,
          forbidden_hosts, max_shards, min_column_width, distinct_ranks, row_multiple,
          row_proportion);
NS_SPARSE_FIELDS(TableRule, cache_load_factor);
NS_FIELDS(TableGroup, level);
NS_FIELDS(Constraints, sharding_types, max_shards_per_rank, max_tables_per_rank,
          max_shards_per_table, min_column_width, column_rule);

namespace {

constexpr double kMaxCount = std::numeric_limits<std::int32_t>::max();
constexpr FieldRange kMinColumnWidth = {"min_column_width", 0, 65536};
constexpr FieldRange kConstraintRanges[] = {{"max_shards_per_rank", 0, kMaxCount},
                                            {"max_tables_per_rank", 0, kMaxCount},
                                            {"max_shards_per_table", 0, kMaxCount},
                                            kMinColumnWidth};
constexpr FieldRange kRuleRanges[] = {{"max_shards", 0, kMaxCount}, kMinColumnWidth};

class ConstraintsDecoder {
 public:
  ConstraintsDecoder(const std::vector<Table>& tables, const Topology& topology)
      : topology_(topology),
        num_ranks_(topology.num_ranks()),
        num_hosts_(static_cast<int>(topology.hosts().size())),
        tables_(tables),
        names_(tables) {}

  Constraints Decode(const v1::Constraints& message, const FieldCheck& check) const {
    auto constraints = TakeFields<Constraints>(message, check);
    std::ranges::sort(constraints.sharding_types);
    for (int i = 0; i < message.tables_size(); ++i) {
      constraints.tables.push_back(DecodeRule(message.tables(i), check.In("tables", i)));
    }
    constraints.colocate = DecodeGroups(message.colocate(), check, "colocate");
    constraints.separate = DecodeGroups(message.separate(), check, "separate");
    CheckRanges<kConstraintRanges>(message, check);
    return constraints;
  }

 private:
  TableRule DecodeRule(const v1::TableRule& message, const FieldCheck& check) const {
    auto rule = TakeFields<TableRule>(message, check);
    rule.tables = DecodeTables(check, message.tables());
    if (message.tables_size() == 0) check.Fail("tables", "must name at least one table");
    std::ranges::sort(rule.sharding_types);
    std::ranges::sort(rule.compute_kernels);
    KeepIndices(check, "ranks", num_ranks_, rule.ranks);
    KeepIndices(check, "forbidden_ranks", num_ranks_, rule.forbidden_ranks);
    KeepIndices(check, "hosts", num_hosts_, rule.hosts);
    KeepIndices(check, "forbidden_hosts", num_hosts_, rule.forbidden_hosts);
    CheckRanges<kRuleRanges>(message, check);
    if (message.has_cache_load_factor()) {
      check.IsPositiveShare("cache_load_factor", rule.cache_load_factor);
    }
    CheckRowMultiple(check, rule);
    CheckKernels(check, message, rule);
    if (DemandsNothing(message)) {
      check.Fail("",
                 "demands nothing: give sharding_types, compute_kernels, ranks, forbidden_ranks, "
                 "hosts, forbidden_hosts, max_shards, min_column_width, distinct_ranks, "
                 "cache_load_factor, row_multiple or row_proportion");
    }
    return rule;
  }

  void CheckRowMultiple(const FieldCheck& check, const TableRule& rule) const {
    const std::int64_t multiple = rule.row_multiple;
    check.InRange("row_multiple", multiple, 0, std::numeric_limits<std::int64_t>::max());
    if (multiple <= 0) return;
    for (const int table : rule.tables) {
      const std::int64_t rows = At(tables_, table).num_embeddings;
      if (rows % multiple == 0) continue;
      check.Fail("row_multiple", "must divide the {} rows of '{}', got {}", rows,
                 names_.ReferenceTo(table), multiple);
    }
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
      auto group = TakeFields<TableGroup>(messages[i], check);
      group.tables = DecodeTables(check, messages[i].tables());
      if (messages[i].tables_size() < 2) {
        check.Fail("tables", "must name at least two tables, got {}", messages[i].tables_size());
      }
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

  // Sorts indices of ranks or hosts of the topology, of which there are `count` (0: it is not known),
  // and leaves out those that are faults, which would make others of what the rule leaves.
  static void KeepIndices(const FieldCheck& check, std::string_view field, int count,
                          std::vector<int>& indices) {
    ListedOnce<int> once(check, field);
    std::vector<int> kept;
    for (int i = 0; i < static_cast<int>(indices.size()); ++i) {
      const int index = At(indices, i);
      if (count > 0 && (index < 0 || index >= count)) {
        check.Fail(fmt::format("{}[{}]", field, i),
                   "must be from 0 to {}, what the topology has, got {}", count - 1, index);
      } else if (once.Note(index, i)) {
        kept.push_back(index);
      }
    }
    std::ranges::sort(kept);
    indices = std::move(kept);
  }

  const Topology& topology_;
  const int num_ranks_;
  const int num_hosts_;
  const std::vector<Table>& tables_;
  const TableNames names_;
};

// A rule or a group, with the names of its tables.
template <typename Message, typename T>
Message EncodeNamed(const T& value, const TableNames& names) {
  auto message = MessageOf<Message>(value);
  for (const int table : value.tables) message.add_tables(names.ReferenceTo(table));
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
    const bool key_value = rule.lists(ComputeKernel::kKeyValue);
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
    *message.add_tables() = EncodeNamed<v1::TableRule>(rule, names);
  }
  for (const TableGroup& group : constraints.colocate) {
    *message.add_colocate() = EncodeNamed<v1::TableGroup>(group, names);
  }
  for (const TableGroup& group : constraints.separate) {
    *message.add_separate() = EncodeNamed<v1::TableGroup>(group, names);
  }
  return message;
}

}  // namespace neuroshard
