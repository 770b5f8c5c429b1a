// Requests and plans from files.
#pragma once

#include <optional>
#include <string>

#include "common/base/status.h"
#include "neuroshard/v1/planner.pb.h"

namespace neuroshard {

// A ShardPlanRequest in YAML, or in JSON when the name ends in ".json". Errors name the file.
StatusOr<v1::ShardPlanRequest> ReadRequestFile(const std::string& path);

struct PlanFile {
  v1::Plan plan;
  std::optional<v1::PlanCost> cost;  // what the planner predicted, when the file says so
};

// JSON: what `plan --format json` prints (a ShardPlanResponse), or a bare Plan. Errors name the
// file.
StatusOr<PlanFile> ReadPlanFile(const std::string& path);

}  // namespace neuroshard
