// Text and JSON of a validation: predicted beside measured.
#pragma once

#include <optional>
#include <string>

#include "client/cli/text_table.h"
#include "client/validate/validation.h"
#include "common/domain/plan_cost.h"

namespace neuroshard {

// A line for each rank and stage: predicted, measured, relative error = (predicted - measured) /
// measured; then the plan's cost (max over ranks), what its collectives took where there are others
// than all-to-alls, and the notes. kWide: also the device of each rank. "-" for what is not known.
// Where the model has intervals, those too, with "!" where the measured value is outside, and the
// number inside.
std::string ValidationAsTable(const ValidationReport& report,
                              const std::optional<PlanCost>& predicted, const TextStyle& style);

// Says that what ran is not what the prediction forecasts: other kernels, or other collectives.
// Nothing where they are the same or one of the two does not say. A note of the report.
std::optional<std::string> OtherBackendsNote(const MeasuredWith& measured,
                                             const MeasuredWith& predicted);

// {"ranks": [{"rank", "worker", "device", "problem",
//             "stages": {"input_dist"|"compute"|"backward_comm"|"forward_comm"|"total":
//             {"predicted_ms", "measured_ms", "relative_error"}}, "measured_forward_compute_ms",
//             "measured_backward_compute_ms", "measured_start_offset_ms"}],
//  "collectives": [{"direction", "collective", "measured_ms": [by rank]}],
//  "measured_with": {"device", "backend", "collective_backend"},
//  "embedding_cost": {"predicted_ms", "measured_ms", "relative_error"}, "notes": [...]}; null for
//  what is not known. "input_dist" only where it was measured; that collective's direction is null.
//  Where there is an interval, "interval": {"low_ms", "high_ms"} beside "relative_error", and
//  "inside" where something was measured.
std::string ValidationAsJson(const ValidationReport& report,
                             const std::optional<PlanCost>& predicted);

}  // namespace neuroshard
