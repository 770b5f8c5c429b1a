#include "server/planner/condition_warnings.h"

#include <fmt/format.h>

#include <algorithm>

namespace neuroshard {

std::vector<std::string> ConditionWarnings(const PlanRequest& request, const CostModelInfo& model) {
  std::vector<std::string> warnings;
  const auto warn = [&](std::string_view what, const auto& measured, const auto& requested) {
    warnings.push_back(
        fmt::format("cost model {} version {} was measured at {} {}, the request has {}: costs "
                    "compare plans but do not forecast times",
                    model.name, model.version, what, measured, requested));
  };
  if (model.global_batch_size != 0 && model.global_batch_size != request.global_batch_size) {
    warn("global batch size", model.global_batch_size, request.global_batch_size);
  }
  if (!model.weight_dtype.empty()) {
    const auto others = std::count_if(
        request.tables.begin(), request.tables.end(),
        [&](const Table& table) { return ToText(table.weight_dtype) != model.weight_dtype; });
    if (others > 0) {
      warn("weight dtype", model.weight_dtype, fmt::format("{} tables of another", others));
    }
  }
  if (!model.optimizer.empty() && model.optimizer != ToText(request.optimizer)) {
    warn("optimizer", model.optimizer, ToText(request.optimizer));
  }
  return warnings;
}

}  // namespace neuroshard
