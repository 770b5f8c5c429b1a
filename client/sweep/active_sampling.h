// Active sampling: the candidates of a sweep of which a cost model is least sure.
#pragma once

#include <cstddef>
#include <vector>

#include "client/stub/planner_client.h"
#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/domain/measurement.h"
#include "common/domain/plan_request.h"

namespace neuroshard {

// The model with its version as the planner has it. FAILED_PRECONDITION when it has no intervals.
StatusOr<CostModelRef> ResolveChoosingModel(const PlannerClient& planner,
                                            const CostModelRef& model);

// Those `count` of the candidates, in their order, whose predicted costs have the widest intervals
// relative to the cost; of equal ones the first. `model` has a version, so all are judged by the
// same model. Asks in several calls and looks at `stop` in between (CANCELLED).
StatusOr<std::vector<ComputeSample>> ChooseLeastSure(const PlannerClient& planner,
                                                     const CostModelRef& model,
                                                     const std::vector<ComputeSample>& candidates,
                                                     std::size_t count, const StopSignal& stop);

// Positions of the `count` largest widths (all, when there are fewer), ascending; of equal widths
// the first.
std::vector<std::size_t> WidestIntervals(const std::vector<double>& widths, std::size_t count);

}  // namespace neuroshard
