// Measuring where a cost model is least sure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "client/stub/planner_client.h"
#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/domain/measurement.h"

namespace neuroshard {

// A cost model as an active sweep knows it.
struct ChoosingModel {
  std::string name;
  int version = 0;  // 0: the newest

  // "NAME/VERSION", or "NAME" for the newest.
  std::string DebugString() const;
  bool operator==(const ChoosingModel&) const = default;
};

// "NAME" or "NAME/VERSION". INVALID_ARGUMENT says what is wrong.
StatusOr<ChoosingModel> ParseChoosingModel(const std::string& text);

// The model with its version as the planner has it. FAILED_PRECONDITION when it does not say how
// sure it is.
StatusOr<ChoosingModel> ResolveChoosingModel(const PlannerClient& planner,
                                             const ChoosingModel& model);

// Those `count` of the candidates, in their order, whose predicted costs have the widest intervals
// relative to the cost; of equal ones the first. `model` has a version, so all are judged by the
// same model. Asks in several calls and looks at `stop` in between (CANCELLED).
StatusOr<std::vector<ComputeSample>> ChooseLeastSure(const PlannerClient& planner,
                                                     const ChoosingModel& model,
                                                     const std::vector<ComputeSample>& candidates,
                                                     std::size_t count, const StopSignal& stop);

}  // namespace neuroshard
