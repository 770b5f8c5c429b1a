#include "server/planner/kernel_warnings.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>

#include "common/devices/device_table.h"
#include "common/domain/backend_names.h"
#include "common/domain/table_names.h"

namespace neuroshard {
namespace {

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
  const KernelLimits& limits = FbgemmOn(TrainsOn(request.topology, model));
  std::vector<int> ragged, other_dtype;
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    const Table& table = request.tables[t];
    if (table.embedding_dim % limits.column_multiple != 0) ragged.push_back(static_cast<int>(t));
    if (!Has(limits.weight_dtypes, table.weight_dtype)) other_dtype.push_back(static_cast<int>(t));
  }
  if (ragged.empty() && other_dtype.empty() && Has(limits.optimizers, request.optimizer)) {
    return warnings;
  }
  const TableNames names(request.tables);
  if (!ragged.empty()) {
    warnings.push_back(fmt::format(
        "{} takes shards whose columns are a multiple of {} alone: TorchRec will not train {} "
        "table(s) as they are, pad their embedding_dim: {}",
        limits.kernels, limits.column_multiple, ragged.size(), NamesOf(names, ragged)));
  }
  if (!other_dtype.empty()) {
    warnings.push_back(fmt::format("{} trains weights of {} alone, and {} table(s) have others: {}",
                                   limits.kernels, TextOfAll(limits.weight_dtypes),
                                   other_dtype.size(), NamesOf(names, other_dtype)));
  }
  if (!Has(limits.optimizers, request.optimizer)) {
    warnings.push_back(fmt::format("{} trains with {} alone, not with {}", limits.kernels,
                                   TextOfAll(limits.optimizers), ToText(request.optimizer)));
  }
  return warnings;
}

}  // namespace neuroshard
