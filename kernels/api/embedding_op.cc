#include "kernels/api/embedding_op.h"

#include <utility>

namespace neuroshard {

Status EmbeddingOp::GenerateInputs(const std::vector<LookupPlan>& plans) {
  std::vector<LookupBatch> inputs;
  inputs.reserve(plans.size());
  for (const LookupPlan& plan : plans) inputs.push_back(ExpandLookups(plan));
  return SetInputs(std::move(inputs));
}

}  // namespace neuroshard
