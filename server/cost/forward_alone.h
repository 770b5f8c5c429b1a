// The forward pass alone, as serving has it: what a model of training says of it.
#pragma once

#include <memory>

#include "server/cost/comm_model.h"
#include "server/cost/compute_model.h"

namespace neuroshard {

// Returns the forward half of a model that splits compute; it has no intervals.
std::shared_ptr<const ComputeModel> ForwardAlone(std::shared_ptr<const ComputeModel> compute);

// Returns the forward stage: no gradients are exchanged, nor replicas kept alike.
std::shared_ptr<const CommModel> ForwardAlone(std::shared_ptr<const CommModel> comm);

}  // namespace neuroshard
