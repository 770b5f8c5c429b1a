// The exposed distribution of ids as a term of a rank's compute, so that searches optimize it.
#pragma once

#include <memory>

#include "server/cost/compute_model.h"
#include "server/cost/input_dist.h"

namespace neuroshard {

// Returns `compute` with one more entry of phi that adds to total_ms; forward and backward compute
// and intervals are unchanged. The term is linear without a constant, so the compute stays additive
// or convex. Immutable, so thread-safe.
std::shared_ptr<const ComputeModel> WithInputDist(std::shared_ptr<const ComputeModel> compute,
                                                  const InputDist& input_dist);

}  // namespace neuroshard
