// What makes a model's numbers comparable but no forecast: it was measured under other conditions,
// or not at all.
#pragma once

#include <string>
#include <vector>

#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// One line for each of batch size, weight dtype and optimizer that differs from what the model was
// measured at; conditions that the model does not state do not differ. One for the sharding types
// that the request names or `plan` uses and the model was not made for. One where formulas price a
// request that did not ask for them by name.
std::vector<std::string> ConditionWarnings(const PlanRequest& request, const CostModelInfo& model,
                                           const Plan& plan = {});

}  // namespace neuroshard
