// Warnings about a request's tables, whichever model prices them: the trainer has no kernels for
// them (common/domain/kernel_limits.h), they differ from those of the previous plan, or constraints
// rather than prices put them into host memory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/domain/plan_request.h"
#include "server/cost/model_info.h"

namespace neuroshard {

// Returns the devices that the request's trainer runs on (Topology.compute_device of the proto);
// where it does not say, those that `model` was measured on, else CUDA devices. None where this
// project's kernels on CPUs were measured, which are no trainer's.
std::optional<ComputeDevice> TrainsOn(const Topology& topology, const CostModelInfo& model);

// Returns the request with the device of its trainer, where that decides how tables are cut; none:
// it is unchanged.
std::optional<PlanRequest> WithTrainer(const PlanRequest& request, const CostModelInfo& model);

// Returns a line for the tables whose columns, and one for those whose weights, have no kernel,
// with their names, and one for the optimizer.
std::vector<std::string> KernelWarnings(const PlanRequest& request, const CostModelInfo& model);

// Returns a line for tables that the previous plan has in another size, which count as new, and one
// where it has tables but none of the request's. Empty without a migration.
std::vector<std::string> MigrationWarnings(const PlanRequest& request);

// Returns a line for each table of `plan` whose rows are in host memory although no rule asks for
// it, where constraints, but not its size, keep every shard of it from fitting a device.
// `default_types` are the cost model's. O(tables + entries of the constraints).
std::vector<std::string> HostMemoryWarnings(const PlanRequest& request,
                                            const std::vector<ShardingType>& default_types,
                                            const Plan& plan);

}  // namespace neuroshard
