#include "server/planner/table_warnings.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "common/base/bytes.h"
#include "common/base/printable_text.h"
#include "common/devices/device_table.h"
#include "common/domain/backend_names.h"
#include "common/domain/memory_use.h"
#include "common/domain/table_names.h"
#include "server/evaluate/migration_report.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/evaluate/rules/list_text.h"

namespace neuroshard {
namespace {

// What only warnings need of the kernels, beside the table of their limits: FBGEMM 1.9's
// split_table_batched_embeddings_ops_training.py. Vectors of CPUs and of unpooled tables, and
// optimizers for features with batches of their own.
constexpr std::array kFloats = {DataType::kFp32, DataType::kFp16, DataType::kBf16};
constexpr std::array kBatchOptimizers = {Optimizer::kSgd, Optimizer::kRowwiseAdagrad,
                                         Optimizer::kAdam};

template <typename E>
bool Has(std::span<const E> words, E word) {
  return words.empty() || std::ranges::find(words, word) != words.end();
}

template <typename E>
std::string TextOfAll(std::span<const E> words) {
  return fmt::format("{}", fmt::join(ToTexts(words), ", "));
}

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
  return std::ranges::any_of(constraints.tables, [&](const auto& rule) {
    const auto& kernels = rule.compute_kernels;
    return std::ranges::binary_search(rule.tables, table) && !kernels.empty() &&
           std::ranges::find(kernels, ComputeKernel::kFused) == kernels.end();
  });
}

// The constraints that leave the table its types and widths.
std::string FieldsOf(const Constraints& constraints, int table) {
  std::vector<std::string> fields;
  for (std::size_t i = 0; i < constraints.tables.size(); ++i) {
    const TableRule& rule = constraints.tables[i];
    if (!std::ranges::binary_search(rule.tables, table)) continue;
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

}  // namespace

std::optional<ComputeDevice> TrainsOn(const Topology& topology, const CostModelInfo& model) {
  if (topology.compute_device) return topology.compute_device;
  if (!DeviceNames(topology).empty()) return ComputeDevice::kCuda;  // all that have a name are
  if (model.measured_with.backend == kNeuroshardCpu) return std::nullopt;
  return ComputeDeviceOf(model.measured_with).value_or(ComputeDevice::kCuda);
}

std::optional<PlanRequest> WithTrainer(const PlanRequest& request, const CostModelInfo& model) {
  if (request.topology.compute_device || IsOfAnotherTrainer(request.search.strategy)) {
    return std::nullopt;
  }
  const std::optional<ComputeDevice> device = TrainsOn(request.topology, model);
  const std::int64_t most = FbgemmOn(device).max_columns;
  if (std::ranges::none_of(request.tables,
                           [&](const Table& table) { return table.embedding_dim > most; })) {
    return std::nullopt;
  }
  PlanRequest with = request;
  with.topology.compute_device = device;
  return with;
}

std::vector<std::string> KernelWarnings(const PlanRequest& request, const CostModelInfo& model) {
  std::vector<std::string> warnings;
  const bool serves = request.optimizer == Optimizer::kNone;
  if (serves || IsOfAnotherTrainer(request.search.strategy)) return warnings;
  const std::optional<ComputeDevice> device = TrainsOn(request.topology, model);
  const KernelLimits& limits = FbgemmOn(device);
  const bool is_cuda = device == ComputeDevice::kCuda;
  const std::span<const DataType> floats(kFloats);
  const std::span<const Optimizer> batch_optimizers(kBatchOptimizers);
  constexpr std::size_t kMaxNames = 16;  // who has to change tables needs many
  // Warns by `line` where tables `lack` something: {0} is the kernels, {1} the number of such
  // tables, {2} their names, and what follows is `more`.
  const auto warn = [&](const auto& lack, std::string_view line, const auto&... more) {
    std::vector<int> tables;
    for (std::size_t t = 0; t < request.tables.size(); ++t) {
      if (lack(request.tables[t])) tables.push_back(static_cast<int>(t));
    }
    if (tables.empty()) return;
    const TableNames names(request.tables);
    warnings.push_back(fmt::format(
        fmt::runtime(line), limits.kernels, tables.size(),
        ListText(tables, kMaxNames, [&](int table) { return names.ReferenceTo(table); }), more...));
  };
  warn([&](const Table& table) { return table.embedding_dim % limits.column_multiple != 0; },
       "{0} takes shards whose columns are a multiple of {3} alone: TorchRec will not train {1} "
       "table(s) as they are, pad their embedding_dim: {2}",
       limits.column_multiple);
  warn([&](const Table& table) { return !Has(limits.weight_dtypes, table.weight_dtype); },
       "{0} trains weights of {3} alone, and {1} table(s) have others: {2}",
       TextOfAll(limits.weight_dtypes));
  warn(
      [&](const Table& table) {
        const bool any_output = !device || (is_cuda && table.kind != TableKind::kEmbedding);
        return !any_output && table.output_dtype && !Has(floats, *table.output_dtype);
      },
      "{0} gives vectors of {3}{4} alone, and {1} table(s) have another output_dtype: {2}",
      TextOfAll(floats), is_cuda ? " of unpooled tables" : "");
  warn(
      [&](const Table& table) {
        return device && !table.feature_batch_sizes.empty() &&
               !Has(batch_optimizers, request.optimizer);
      },
      "{0} trains features with batches of their own with {3} alone, and {1} table(s) have them "
      "(feature_batch_sizes) and are trained with {4}: {2}",
      TextOfAll(batch_optimizers), ToText(request.optimizer));
  if (!Has(limits.optimizers, request.optimizer)) {
    warnings.push_back(fmt::format("{} trains with {} alone, not with {}", limits.kernels,
                                   TextOfAll(limits.optimizers), ToText(request.optimizer)));
  }
  return warnings;
}

std::vector<std::string> MigrationWarnings(const PlanRequest& request) {
  if (!request.migration.has_value() || request.migration->previous.tables.empty()) return {};
  std::vector<bool> before(request.tables.size());
  for (const int table : TablesOf(request.migration->previous, request.tables)) {
    if (table >= 0) before[static_cast<std::size_t>(table)] = true;
  }
  constexpr std::size_t kMaxNames = 3;
  const TableNames table_names(request.tables);
  const PreviousPlacement previous(request);
  std::size_t named = 0;
  std::size_t others = 0;
  std::string names;
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    if (!before[t]) continue;
    ++named;
    if (previous.Has(static_cast<int>(t)) || ++others > kMaxNames) continue;
    names += (names.empty() ? "" : ", ") + Quoted(table_names.ReferenceTo(static_cast<int>(t)));
  }
  if (named == 0) {
    return {"migration.previous has none of the request's tables: all of them count as new"};
  }
  if (others == 0) return {};
  return {
      fmt::format("migration.previous has {} table(s) in another size than the request: {}{}; "
                  "they count as new, which moves nothing",
                  others, names, others > kMaxNames ? ", ..." : "")};
}

std::vector<std::string> HostMemoryWarnings(const PlanRequest& request,
                                            const std::vector<ShardingType>& default_types,
                                            const Plan& plan) {
  const bool in_host_memory = std::ranges::any_of(
      plan.tables, [](const TablePlan& table) { return IsInHostMemory(table.compute_kernel); });
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
        FieldsOf(request.constraints, table), ListText(rules.of(table).types.values()),
        FormatBytes(least), FormatBytes(largest)));
  }
  return warnings;
}

}  // namespace neuroshard
