#include "kernels/api/embedding_op.h"

#include <utility>

namespace neuroshard {

OptimizerStateShape StateOfRow(Optimizer optimizer, std::int64_t cols) {
  switch (optimizer) {
    case Optimizer::kSgd:
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
  std::vector<LookupBatch> inputs;
  inputs.reserve(plans.size());
  for (const LookupPlan& plan : plans) inputs.push_back(ExpandLookups(plan));
  return SetInputs(std::move(inputs));
}

}  // namespace neuroshard
