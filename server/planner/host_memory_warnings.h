// Tables that constraints, and not their price, put into host memory.
#pragma once

#include <string>
#include <vector>

#include "common/domain/plan_request.h"

namespace neuroshard {

// A line for each table of `plan` whose rows are in host memory although no rule asks for that,
// where the constraints leave it no shard that fits a device, and without them there is one.
// `default_types`: those of the cost model. O(tables + what the constraints list).
std::vector<std::string> HostMemoryWarnings(const PlanRequest& request,
                                            const std::vector<ShardingType>& default_types,
                                            const Plan& plan);

}  // namespace neuroshard
