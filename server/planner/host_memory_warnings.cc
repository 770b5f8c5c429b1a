#include "server/planner/host_memory_warnings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>

#include "common/base/bytes.h"
#include "common/base/printable_text.h"
#include "common/domain/memory_use.h"
#include "common/domain/table_names.h"
#include "server/evaluate/rules/compiled_rules.h"

namespace neuroshard {
namespace {

// What the fullest shard of a table takes of a device at least, if the table is laid out as the
// rules let it be with its rows in device memory.
std::int64_t LeastShardBytes(const PlanRequest& request, const CompiledRules& rules, int index) {
  const Table& table = request.tables[static_cast<std::size_t>(index)];
  const TableRules& of = rules.of(index);
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const auto& word : kWords<ShardingType>) {
    if (!of.types.contains(word.value)) continue;
    ShardLayout layout = {.type = word.value};
    if (CutsRows(layout.type)) {
      const bool on_a_host =
          layout.type == ShardingType::kTableRowWise || layout.type == ShardingType::kGridShard;
      layout.row_shards = on_a_host ? of.ranks->most_of_a_host() : request.topology.num_ranks();
    }
    std::int64_t cols = table.embedding_dim;
    if (CutsColumns(layout.type)) {
      const std::int64_t narrowest =
          of.column_block > 0 ? of.column_block : std::max(of.min_column_width, kColumnAlignment);
      cols = std::min(cols, std::max(narrowest, (cols - 1) / of.max_shards + 1));
    }
    const std::int64_t rows = (table.num_embeddings - 1) / layout.row_shards + 1;
    least = std::min(least, ShardMemory(request, table, layout, rows, cols).total_bytes());
  }
  return least;
}

std::int64_t LargestDeviceBytes(const PlanRequest& request) {
  std::int64_t largest = 0;
  for (const Device& device : request.topology.devices) {
    largest =
        std::max(largest, device.memory_bytes - ReserveBytes(request.memory, device.memory_bytes));
  }
  return largest;
}

bool AsksForHostMemory(const Constraints& constraints, int table) {
  return std::any_of(constraints.tables.begin(), constraints.tables.end(), [&](const auto& rule) {
    const auto& kernels = rule.compute_kernels;
    return std::binary_search(rule.tables.begin(), rule.tables.end(), table) && !kernels.empty() &&
           std::find(kernels.begin(), kernels.end(), ComputeKernel::kFused) == kernels.end();
  });
}

// The constraints that leave the table its types and widths.
std::string FieldsOf(const Constraints& constraints, int table) {
  std::vector<std::string> fields;
  for (std::size_t i = 0; i < constraints.tables.size(); ++i) {
    const TableRule& rule = constraints.tables[i];
    if (!std::binary_search(rule.tables.begin(), rule.tables.end(), table)) continue;
    const auto add = [&](bool is_set, std::string_view field) {
      if (is_set) fields.push_back(fmt::format("constraints.tables[{}].{}", i, field));
    };
    add(!rule.sharding_types.empty(), "sharding_types");
    add(rule.max_shards > 0, "max_shards");
    add(rule.min_column_width > 0, "min_column_width");
  }
  if (fields.empty()) fields.emplace_back("constraints");
  return fmt::format("{}", fmt::join(fields, ", "));
}

std::string TypesText(const TypeSet& types) {
  std::vector<std::string_view> words;
  for (const auto& word : kWords<ShardingType>) {
    if (types.contains(word.value)) words.push_back(word.text);
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace

std::vector<std::string> HostMemoryWarnings(const PlanRequest& request,
                                            const std::vector<ShardingType>& default_types,
                                            const Plan& plan) {
  const bool in_host_memory =
      std::any_of(plan.tables.begin(), plan.tables.end(),
                  [](const TablePlan& table) { return IsInHostMemory(table.compute_kernel); });
  if (!in_host_memory || request.constraints.empty()) return {};
  PlanRequest free = request;
  free.constraints = {};
  const CompiledRules rules(request, TypeSet(default_types));
  const CompiledRules no_rules(free, TypeSet(default_types));
  const std::int64_t largest = LargestDeviceBytes(request);
  const TableNames names(request.tables);
  const std::vector<int> table_of = TablesOf(plan, request.tables);
  std::vector<std::string> warnings;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const int table = table_of[t];
    if (table < 0 || !IsInHostMemory(plan.tables[t].compute_kernel) ||
        AsksForHostMemory(request.constraints, table)) {
      continue;
    }
    const std::int64_t least = LeastShardBytes(request, rules, table);
    if (least <= largest || LeastShardBytes(free, no_rules, table) > largest) continue;
    warnings.push_back(fmt::format(
        "{} is in host memory ({}), because {} leaves it {}: a shard of {} at least, and no device "
        "has more than {} for tables",
        Quoted(names.ReferenceTo(table)), ToText(plan.tables[t].compute_kernel),
        FieldsOf(request.constraints, table), TypesText(rules.of(table).types), FormatBytes(least),
        FormatBytes(largest)));
  }
  return warnings;
}

}  // namespace neuroshard
