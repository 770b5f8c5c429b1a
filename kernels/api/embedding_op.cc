#include "kernels/api/embedding_op.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <tuple>
#include <utility>

namespace neuroshard {

EmbeddingAbilities AllAbilities(std::vector<DataType> weight_dtypes) {
  return {.weight_dtypes = std::move(weight_dtypes),
          .optimizers = {Optimizer::kSgd, Optimizer::kAdagrad, Optimizer::kRowwiseAdagrad,
                         Optimizer::kAdam, Optimizer::kPartialRowwiseAdam, Optimizer::kLamb,
                         Optimizer::kLarsSgd},
          .pooling_modes = {PoolingMode::kSum, PoolingMode::kMean, PoolingMode::kNone},
          .compute_kernels = {ComputeKernel::kFused, ComputeKernel::kFusedUvm,
                              ComputeKernel::kFusedUvmCaching}};
}

OptimizerStateShape StateOfRow(Optimizer optimizer, std::int64_t cols) {
  switch (optimizer) {
    case Optimizer::kSgd:
    case Optimizer::kNone:  // CheckSpec has refused it
      break;
    case Optimizer::kAdagrad:
    case Optimizer::kLarsSgd:
      return {cols, 0};
    case Optimizer::kRowwiseAdagrad:
      return {1, 0};
    case Optimizer::kAdam:
    case Optimizer::kLamb:
      return {cols, cols};
    case Optimizer::kPartialRowwiseAdam:
      return {cols, 1};
  }
  return {};
}

Status EmbeddingOp::GenerateInputs(const std::vector<LookupPlan>& plans) {
  std::vector<LookupBatch> inputs = Mapped(plans, ExpandLookups);
  return SetInputs(std::move(inputs));
}

namespace {

constexpr float kAnyFloat = std::numeric_limits<float>::infinity();

template <typename E>
Status CheckAmong(const std::vector<E>& all, E one) {
  if (std::ranges::find(all, one) != all.end()) return absl::OkStatus();
  return InvalidArgument("this device has {}, got {}", fmt::join(ToTexts(all), ", "), ToText(one));
}

Status CheckNumbers(const EmbeddingOpSpec& spec) {
  for (const auto& [name, value, max] :
       {std::tuple("learning_rate", spec.learning_rate, kAnyFloat),
        std::tuple("epsilon", spec.epsilon, kAnyFloat), std::tuple("beta1", spec.beta1, 1.0F),
        std::tuple("beta2", spec.beta2, 1.0F), std::tuple("eta", spec.eta, kAnyFloat),
        std::tuple("momentum", spec.momentum, 1.0F)}) {
    if (value >= 0 && value < max) continue;  // not NaN
    return InvalidArgument("{}: must be in [0, {}), got {}", name, max, value);
  }
  return absl::OkStatus();
}

Status CheckTable(const EmbeddingTableSpec& table, const EmbeddingAbilities& abilities) {
  if (table.rows < 1 || table.cols < 1) {
    return InvalidArgument("rows and cols must be at least 1, got {} and {}", table.rows,
                           table.cols);
  }
  NS_RETURN_IF_ERROR(
      Annotate(CheckAmong(abilities.weight_dtypes, table.weight_dtype), "weight_dtype"));
  NS_RETURN_IF_ERROR(
      Annotate(CheckAmong(abilities.pooling_modes, table.pooling_mode), "pooling_mode"));
  NS_RETURN_IF_ERROR(
      Annotate(CheckAmong(abilities.compute_kernels, table.kernel), "compute_kernel"));
  const double factor = table.cache_load_factor;
  const bool caches = table.kernel == ComputeKernel::kFusedUvmCaching;
  if (caches ? factor > 0 && factor <= 1 : factor == 0) return absl::OkStatus();
  return InvalidArgument("cache_load_factor: must be {} for {}, got {}", caches ? "in (0, 1]" : "0",
                         ToText(table.kernel), factor);
}

Status CheckInput(const LookupBatch& batch, const EmbeddingTableSpec& table,
                  std::int64_t batch_size) {
  if (static_cast<std::int64_t>(batch.offsets.size()) != batch_size + 1) {
    return InvalidArgument("has {} offsets for {} samples", batch.offsets.size(), batch_size);
  }
  if (batch.offsets.front() != 0 || !std::ranges::is_sorted(batch.offsets) ||
      batch.offsets.back() != static_cast<std::int64_t>(batch.ids.size())) {
    return InvalidArgument("offsets must ascend from 0 to the number of ids, {}", batch.ids.size());
  }
  if (!batch.weights.empty() && batch.weights.size() != batch.ids.size()) {
    return InvalidArgument("has {} weights for {} ids", batch.weights.size(), batch.ids.size());
  }
  if (!batch.weights.empty() && table.pooling_mode == PoolingMode::kNone) {
    return InvalidArgument("has weights, and without pooling there is no sum");
  }
  for (const std::int64_t id : batch.ids) {
    if (id < 0 || id >= table.rows) {
      return InvalidArgument("ids must be in [0, {}), got {}", table.rows, id);
    }
  }
  return absl::OkStatus();
}

Status CheckPlan(const LookupPlan& plan, const EmbeddingTableSpec& table, std::int64_t batch_size) {
  if (plan.rule.batch_size != batch_size) {
    return InvalidArgument("is planned for {} samples, not {}", plan.rule.batch_size, batch_size);
  }
  if (plan.rows > table.rows) {
    return InvalidArgument("is planned for {} rows of {}", plan.rows, table.rows);
  }
  if (plan.weighted && table.pooling_mode == PoolingMode::kNone) {
    return InvalidArgument("has weights, and without pooling there is no sum");
  }
  return absl::OkStatus();
}

// One input a table, each of which passes `check`.
template <typename Input, typename Check>
Status CheckEach(const EmbeddingOpSpec& spec, const std::vector<Input>& inputs, Check check) {
  if (inputs.size() != spec.tables.size()) {
    return InvalidArgument("{} inputs for {} tables", inputs.size(), spec.tables.size());
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    NS_RETURN_IF_ERROR(
        Annotate(check(inputs[i], spec.tables[i], spec.batch_size), fmt::format("inputs[{}]", i)));
  }
  return absl::OkStatus();
}

}  // namespace

Status CheckSpec(const EmbeddingOpSpec& spec, const EmbeddingAbilities& abilities) {
  constexpr std::int64_t kMaxBatch = std::int64_t{1} << 31;
  if (spec.batch_size < 1 || spec.batch_size > kMaxBatch) {
    return InvalidArgument("batch_size: must be in [1, 2^31], got {}", spec.batch_size);
  }
  NS_RETURN_IF_ERROR(Annotate(CheckAmong(abilities.optimizers, spec.optimizer), "optimizer"));
  NS_RETURN_IF_ERROR(CheckNumbers(spec));
  for (std::size_t i = 0; i < spec.tables.size(); ++i) {
    NS_RETURN_IF_ERROR(
        Annotate(CheckTable(spec.tables[i], abilities), fmt::format("tables[{}]", i)));
  }
  return absl::OkStatus();
}

Status CheckInputs(const EmbeddingOpSpec& spec, const std::vector<LookupBatch>& inputs) {
  return CheckEach(spec, inputs, CheckInput);
}

Status CheckPlans(const EmbeddingOpSpec& spec, const std::vector<LookupPlan>& plans) {
  return CheckEach(spec, plans, CheckPlan);
}

}  // namespace neuroshard
