// Answer and text of a validation: predicted beside measured.
#pragma once

#include <optional>
#include <string>

#include "client/cli/text_table.h"
#include "client/validate/validation.h"
#include "common/domain/plan_cost.h"
#include "neuroshard/v1/answers.pb.h"

namespace neuroshard {

// A line for each rank and stage: predicted, measured, relative error = (predicted - measured) /
// measured; then the plan's cost (max over ranks), what its collectives took where there are others
// than all-to-alls, and the notes. kWide: also the device of each rank. "-" for what is not known.
// Where the model has intervals, those too, with "!" where the measured value is outside, and the
// number inside.
std::string ValidationAsTable(const ValidationReport& report,
                              const std::optional<PlanCost>& predicted, const TextStyle& style);

// What was predicted and what was measured.
v1::ValidationAnswer ValidationOf(const ValidationReport& report,
                                  const std::optional<PlanCost>& predicted);

}  // namespace neuroshard
