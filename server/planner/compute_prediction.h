// Compute predictions for sets of shards, without a plan.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/domain/measurement.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// The compute cost of one set of shards on one device.
struct ComputePrediction {
  ComputeCost cost;
  std::optional<ComputeInterval> interval;  // where the model has intervals
};

// Returns a prediction per set, in order: what one device computes on its shards (at least one),
// each a table of its own, at the batch size and optimizer of the set. DEADLINE_EXCEEDED when
// `stop` ends it, which is polled every few thousand shards.
StatusOr<std::vector<ComputePrediction>> PredictCompute(const CostModel& model,
                                                        std::span<const ComputeSample> sets,
                                                        const StopSignal& stop);

}  // namespace neuroshard
