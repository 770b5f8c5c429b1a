// What the benchmarks of the search work on: a cost model from disk and NeuroShard's 100 tasks.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// The two versions that the project ships: networks as in the paper, and the universal model.
enum class ShippedModel { kPaper, kUniversal };

// ROOT/NAME/VERSION.
std::filesystem::path ShippedModelDirectory(ShippedModel model);
StatusOr<std::shared_ptr<const CostModel>> LoadModel(const std::filesystem::path& directory);

// The tasks of configs/workloads/tasks_4gpu_maxdim<max_dim>.txt on `num_devices` devices of 4 GiB
// that hold weights alone, at the batch size the model was measured at, or the nearest to the
// benchmark's 65536.
StatusOr<std::vector<PlanRequest>> BenchmarkTaskRequests(int num_devices, int max_dim,
                                                         const CostModel& model);

}  // namespace neuroshard
