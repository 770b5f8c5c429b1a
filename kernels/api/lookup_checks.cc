#include "kernels/api/lookup_checks.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace neuroshard {
namespace {

Status CheckInput(const LookupBatch& batch, std::int64_t rows, std::int64_t batch_size) {
  if (static_cast<std::int64_t>(batch.offsets.size()) != batch_size + 1) {
    return InvalidArgument("has {} offsets for {} samples", batch.offsets.size(), batch_size);
  }
  if (batch.offsets.front() != 0 || !std::is_sorted(batch.offsets.begin(), batch.offsets.end()) ||
      batch.offsets.back() != static_cast<std::int64_t>(batch.ids.size())) {
    return InvalidArgument("offsets must ascend from 0 to the number of ids, {}", batch.ids.size());
  }
  if (!batch.weights.empty() && batch.weights.size() != batch.ids.size()) {
    return InvalidArgument("has {} weights for {} ids", batch.weights.size(), batch.ids.size());
  }
  for (const std::int64_t id : batch.ids) {
    if (id < 0 || id >= rows) {
      return InvalidArgument("ids must be in [0, {}), got {}", rows, id);
    }
  }
  return absl::OkStatus();
}

Status CheckPlan(const LookupPlan& plan, std::int64_t rows, std::int64_t batch_size) {
  if (plan.rule.batch_size != batch_size) {
    return InvalidArgument("is planned for {} samples, not {}", plan.rule.batch_size, batch_size);
  }
  if (plan.rows > rows) return InvalidArgument("is planned for {} rows of {}", plan.rows, rows);
  return absl::OkStatus();
}

Status CheckOneEach(std::size_t inputs, std::size_t tables) {
  if (inputs == tables) return absl::OkStatus();
  return InvalidArgument("{} inputs for {} tables", inputs, tables);
}

}  // namespace

Status CheckSpec(const EmbeddingOpSpec& spec) {
  constexpr std::int64_t kMaxBatch = std::int64_t{1} << 31;
  if (spec.batch_size < 1 || spec.batch_size > kMaxBatch) {
    return InvalidArgument("batch_size: must be in [1, 2^31], got {}", spec.batch_size);
  }
  if (spec.optimizer != Optimizer::kSgd && spec.optimizer != Optimizer::kRowwiseAdagrad) {
    return InvalidArgument("optimizer: must be sgd or rowwise_adagrad, got {}",
                           std::string(ToText(spec.optimizer)));
  }
  if (!std::isfinite(spec.learning_rate) || !std::isfinite(spec.epsilon) || spec.epsilon < 0) {
    return InvalidArgument("learning_rate and epsilon: must be finite, got {} and {}",
                           spec.learning_rate, spec.epsilon);
  }
  for (std::size_t i = 0; i < spec.tables.size(); ++i) {
    const EmbeddingTableSpec& table = spec.tables[i];
    if (table.rows < 1 || table.cols < 1) {
      return InvalidArgument("tables[{}]: rows and cols must be at least 1, got {} and {}", i,
                             table.rows, table.cols);
    }
  }
  return absl::OkStatus();
}

Status CheckInputs(const EmbeddingOpSpec& spec, const std::vector<LookupBatch>& inputs) {
  NS_RETURN_IF_ERROR(CheckOneEach(inputs.size(), spec.tables.size()));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    NS_RETURN_IF_ERROR(Annotate(CheckInput(inputs[i], spec.tables[i].rows, spec.batch_size),
                                fmt::format("inputs[{}]", i)));
  }
  return absl::OkStatus();
}

Status CheckPlans(const EmbeddingOpSpec& spec, const std::vector<LookupPlan>& plans) {
  NS_RETURN_IF_ERROR(CheckOneEach(plans.size(), spec.tables.size()));
  for (std::size_t i = 0; i < plans.size(); ++i) {
    NS_RETURN_IF_ERROR(Annotate(CheckPlan(plans[i], spec.tables[i].rows, spec.batch_size),
                                fmt::format("inputs[{}]", i)));
  }
  return absl::OkStatus();
}

}  // namespace neuroshard
