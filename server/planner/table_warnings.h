// Warnings of a request's tables, whatever prices them: the trainer's kernels do not take them as they
// are (common/domain/kernel_limits.h), they are not those of a previous plan, or constraints, and not
// their price, put them into host memory.
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

// One line for tables that the previous plan has in another size: they count as new.
// One where it has tables, and none of the request's. Nothing without a migration.
std::vector<std::string> MigrationWarnings(const PlanRequest& request);

// A line for each table of `plan` whose rows are in host memory although no rule asks for that,
// where the constraints leave it no shard that fits a device, and without them there is one.
// `default_types`: those of the cost model. O(tables + what the constraints list).
std::vector<std::string> HostMemoryWarnings(const PlanRequest& request,
                                            const std::vector<ShardingType>& default_types,
                                            const Plan& plan);

}  // namespace neuroshard
