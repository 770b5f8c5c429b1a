#include "server/planner/kernel_warnings.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "common/devices/device_table.h"
#include "common/domain/backend_names.h"
#include "common/domain/table_names.h"

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
  return words.empty() || std::find(words.begin(), words.end(), word) != words.end();
}

template <typename E>
std::string TextOfAll(std::span<const E> words) {
  std::vector<std::string_view> texts;
  for (const E word : words) texts.push_back(ToText(word));
  return fmt::format("{}", fmt::join(texts, ", "));
}

// "'a', 'b' and 7 more": who has to change tables needs many names.
std::string NamesOf(const TableNames& names, const std::vector<int>& tables) {
  constexpr std::size_t kNamed = 16;
  std::vector<std::string> some;
  for (std::size_t i = 0; i < tables.size() && i < kNamed; ++i) {
    some.push_back(fmt::format("'{}'", names.ReferenceTo(tables[i])));
  }
  std::string text = fmt::format("{}", fmt::join(some, ", "));
  if (tables.size() > kNamed) text += fmt::format(" and {} more", tables.size() - kNamed);
  return text;
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
  if (std::none_of(request.tables.begin(), request.tables.end(),
                   [&](const Table& table) { return table.embedding_dim > most; })) {
    return std::nullopt;
  }
  PlanRequest with = request;
  with.topology.compute_device = device;
  return with;
}

std::vector<std::string> KernelWarnings(const PlanRequest& request, const CostModelInfo& model) {
  std::vector<std::string> warnings;
  if (IsOfAnotherTrainer(request.search.strategy)) return warnings;
  const std::optional<ComputeDevice> device = TrainsOn(request.topology, model);
  const KernelLimits& limits = FbgemmOn(device);
  const bool is_cuda = device == ComputeDevice::kCuda;
  const std::span<const DataType> floats(kFloats);
  const std::span<const Optimizer> batch_optimizers(kBatchOptimizers);
  std::vector<int> ragged, other_dtype, other_output, own_batches;
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    const Table& table = request.tables[t];
    const int at = static_cast<int>(t);
    if (table.embedding_dim % limits.column_multiple != 0) ragged.push_back(at);
    if (!Has(limits.weight_dtypes, table.weight_dtype)) other_dtype.push_back(at);
    if (!device) continue;
    const bool any_output = is_cuda && table.kind != TableKind::kEmbedding;
    if (!any_output && table.output_dtype && !Has(floats, *table.output_dtype)) {
      other_output.push_back(at);
    }
    if (!table.feature_batch_sizes.empty() && !Has(batch_optimizers, request.optimizer)) {
      own_batches.push_back(at);
    }
  }
  const auto names_of = [&](const std::vector<int>& tables) {
    return NamesOf(TableNames(request.tables), tables);
  };
  const auto warn = [&](const std::vector<int>& tables, const std::string& rule,
                        std::string_view others) {
    if (tables.empty()) return;
    warnings.push_back(fmt::format("{} {} alone, and {} table(s) have {}: {}", limits.kernels, rule,
                                   tables.size(), others, names_of(tables)));
  };
  if (!ragged.empty()) {
    warnings.push_back(fmt::format(
        "{} takes shards whose columns are a multiple of {} alone: TorchRec will not train {} "
        "table(s) as they are, pad their embedding_dim: {}",
        limits.kernels, limits.column_multiple, ragged.size(), names_of(ragged)));
  }
  warn(other_dtype, "trains weights of " + TextOfAll(limits.weight_dtypes), "others");
  warn(
      other_output,
      fmt::format("gives vectors of {}{}", TextOfAll(floats), is_cuda ? " of unpooled tables" : ""),
      "another output_dtype");
  warn(
      own_batches, "trains features with batches of their own with " + TextOfAll(batch_optimizers),
      fmt::format("them (feature_batch_sizes) and are trained with {}", ToText(request.optimizer)));
  if (!Has(limits.optimizers, request.optimizer)) {
    warnings.push_back(fmt::format("{} trains with {} alone, not with {}", limits.kernels,
                                   TextOfAll(limits.optimizers), ToText(request.optimizer)));
  }
  return warnings;
}

}  // namespace neuroshard
