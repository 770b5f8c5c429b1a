// What makes a model's numbers comparable but no forecast: it was measured under other conditions.
#pragma once

#include <string>
#include <vector>

#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// One line for each of batch size, weight dtype and optimizer that differs from what the model was
// measured at; conditions that the model does not state do not differ.
std::vector<std::string> ConditionWarnings(const PlanRequest& request, const CostModelInfo& model);

}  // namespace neuroshard
