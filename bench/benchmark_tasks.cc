#include "bench/benchmark_tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/bytes.h"
#include "common/codec/table_files.h"
#include "server/networks/model_manifest.h"
#include "server/networks/network_cost_model.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kTaskMemoryBytes = 4 * kGiB;  // of NeuroShard's benchmark

std::string Workload(const std::string& name) {
  return std::string(NEUROSHARD_SOURCE_DIR) + "/configs/workloads/" + name;
}

}  // namespace

std::filesystem::path ShippedModelDirectory(ShippedModel model) {
  return std::filesystem::path(NEUROSHARD_SOURCE_DIR) / "configs/models/cpu-amd-epyc" /
         (model == ShippedModel::kPaper ? "1" : "3");
}

StatusOr<std::shared_ptr<const CostModel>> LoadModel(const std::filesystem::path& directory) {
  NS_ASSIGN_OR_RETURN(const ModelManifest manifest, ReadModelManifest(directory));
  return LoadCostModel(manifest, directory);
}

StatusOr<std::vector<PlanRequest>> BenchmarkTaskRequests(int num_devices, int max_dim,
                                                         const CostModel& model) {
  NS_ASSIGN_OR_RETURN(const auto tables, ReadTableCsv(Workload("dlrm_2021_tables856.csv")));
  NS_ASSIGN_OR_RETURN(const auto tasks,
                      ReadTaskFile(Workload(fmt::format("tasks_4gpu_maxdim{}.txt", max_dim))));
  std::vector<PlanRequest> requests;
  for (const BenchmarkTask& task : tasks) {
    PlanRequest request;
    NS_ASSIGN_OR_RETURN(request.tables, TablesOfTask(tables, task));
    request.topology.devices.assign(static_cast<std::size_t>(num_devices),
                                    Device{0, kTaskMemoryBytes});
    request.memory.rule = MemoryRule::kWeightsOnly;
    const ConditionRanges& measured = model.info().coverage.ranges;
    if (model.info().coverage.global_batch_size > 0) {
      request.global_batch_size = model.info().coverage.global_batch_size;
    } else if (measured.max_batch_size > 0) {
      request.global_batch_size =
          std::clamp(request.global_batch_size, measured.min_batch_size, measured.max_batch_size);
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace neuroshard
