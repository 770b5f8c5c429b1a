#include "server/planner/condition_warnings.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>

namespace neuroshard {

namespace {

// The types that constraints name or the plan uses and `model` was not made for, in the order of
// the vocabulary.
std::vector<std::string_view> ForeignTypes(const Constraints& constraints, const Plan& plan,
                                           const CostModelInfo& model) {
  std::set<ShardingType> named(constraints.sharding_types.begin(),
                               constraints.sharding_types.end());
  for (const TableRule& rule : constraints.tables) {
    named.insert(rule.sharding_types.begin(), rule.sharding_types.end());
  }
  for (const TablePlan& table : plan.tables) named.insert(table.sharding_type);
  for (const ShardingType type : model.sharding_types) named.erase(type);
  std::vector<std::string_view> foreign;
  for (const ShardingType type : named) foreign.push_back(ToText(type));
  return foreign;
}

}  // namespace

std::vector<std::string> ConditionWarnings(const PlanRequest& request, const CostModelInfo& model,
                                           const Plan& plan) {
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
  if (model.kind == kAnalyticKind) {  // has formulas for every type
    if (request.cost_model.name.empty()) {
      warnings.push_back(
          fmt::format("the request names no cost model: {} version {} priced it by published "
                      "formulas and figures, nothing was measured",
                      model.name, model.version));
    }
  } else if (const auto foreign = ForeignTypes(request.constraints, plan, model);
             !foreign.empty()) {
    warnings.push_back(
        fmt::format("cost model {} version {} was not made for {}: priced by volume equivalence, "
                    "not measured",
                    model.name, model.version, fmt::join(foreign, ", ")));
  }
  return warnings;
}

}  // namespace neuroshard
