// The exposed distribution of ids in the objective of searches: a term of a rank's compute.
#pragma once

#include <memory>

#include "server/cost/compute_model.h"
#include "server/cost/input_dist.h"

namespace neuroshard {

// `compute` with one more entry of phi, which a rank's total_ms has besides; forward and backward
// compute and intervals are those of `compute`. Linear without a constant, so `compute` stays
// additive or convex where it is. Thread-safe as `compute`.
std::shared_ptr<const ComputeModel> WithInputDist(std::shared_ptr<const ComputeModel> compute,
                                                  const InputDist& input_dist);

}  // namespace neuroshard
