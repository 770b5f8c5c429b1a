// Warnings of tables that the trainer's kernels do not take as they are
// (common/domain/kernel_limits.h), and whose kernels these are.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// What the request's trainer computes on (Topology.compute_device of the proto). Where it does not
// say: what `model` was measured on, else CUDA devices; none where this project's kernels on CPUs
// were measured, which are no trainer's.
std::optional<ComputeDevice> TrainsOn(const Topology& topology, const CostModelInfo& model);

// The request with what its trainer computes on, where that decides how tables are cut; none: it
// stays as it is.
std::optional<PlanRequest> WithTrainer(const PlanRequest& request, const CostModelInfo& model);

// One line for the tables whose columns, and one for those whose weights have no kernel, with their
// names; and one for the optimizer.
std::vector<std::string> KernelWarnings(const PlanRequest& request, const CostModelInfo& model);

}  // namespace neuroshard
