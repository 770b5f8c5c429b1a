#include "server/planner/device_models.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "common/base/failure_reason.h"
#include "server/planner/condition_warnings.h"

namespace neuroshard {
namespace {

bool IsSame(const CostModelInfo& a, const CostModelInfo& b) {
  return a.name == b.name && a.version == b.version;
}

}  // namespace

StatusOr<BoundDevices> BindDevices(
    const PlanRequest& request, const OwnModel& own,
    const std::vector<StatusOr<std::shared_ptr<const CostModel>>>& models) {
  std::vector<BoundCostModel> bound = {own.bound};  // each model once
  std::vector<const CostModelInfo*> infos = {&own.model->info()};
  std::map<std::string_view, std::size_t> of_device;  // position in `bound`
  std::map<std::string_view, std::shared_ptr<const CostModel>> model_of_device;
  std::vector<std::string> faults;
  FailureReason reason = FailureReason::kModelUnfit;
  const auto add_fault = [&](std::size_t entry, const Status& status) {
    if (faults.empty()) reason = ReasonOf(status).value_or(FailureReason::kModelUnfit);
    faults.push_back(fmt::format("device_cost_models[{}].cost_model: {}", entry, Message(status)));
  };
  for (std::size_t i = 0; i < models.size(); ++i) {
    if (!models[i].ok()) {
      add_fault(i, models[i].status());
      continue;
    }
    const std::shared_ptr<const CostModel>& model = *models[i];
    const std::string& device = request.device_cost_models[i].device;
    model_of_device[device] = model;
    const auto known = std::find_if(infos.begin(), infos.end(), [&](const CostModelInfo* info) {
      return IsSame(*info, model->info());
    });
    of_device[device] = static_cast<std::size_t>(known - infos.begin());
    if (known != infos.end()) continue;
    StatusOr<BoundCostModel> compute = BindCompute(*model, own.bound.conditions());
    if (!compute.ok()) add_fault(i, compute.status());
    infos.push_back(&model->info());
    bound.push_back(compute.ok() ? *std::move(compute) : own.bound);
  }
  if (!faults.empty()) {
    return WithReason(FailedPrecondition("{}", fmt::join(faults, "; ")), reason);
  }

  BoundDevices result = {own.bound, {}};
  std::vector<int> kind_of_rank;
  std::vector<BoundCostModel> kinds;           // those that ranks have
  std::vector<int> kind_of(bound.size(), -1);  // position in `kinds`
  for (const Device& device : request.topology.devices) {
    const auto found = of_device.find(device.name);
    const std::size_t at = found == of_device.end() ? 0 : found->second;
    if (kind_of[at] < 0) {
      kind_of[at] = static_cast<int>(kinds.size());
      kinds.push_back(bound[at]);
    }
    kind_of_rank.push_back(kind_of[at]);
    const auto seen = std::find_if(result.devices.begin(), result.devices.end(),
                                   [&](const DeviceModel& of) { return of.device == device.name; });
    if (seen != result.devices.end()) {
      ++seen->num_ranks;
      continue;
    }
    const auto model = model_of_device.find(device.name);
    result.devices.push_back(
        {device.name, 1, model == model_of_device.end() ? own.model : model->second});
  }
  const bool all_own = kinds.size() == 1 && kind_of.front() == 0;
  if (!all_own) result.bound = BoundCostModel(own.bound, kinds, std::move(kind_of_rank));
  return result;
}

CostModelInfo ComputeInfo(const CostModelInfo& info) {
  CostModelInfo compute = info;
  compute.measured_with.collective_backend.clear();
  compute.measured_with.collective_cadence.clear();
  compute.coverage.comm_fabric.clear();
  compute.coverage.ranges.min_ranks = 0;
  compute.coverage.ranges.max_ranks = 0;
  compute.coverage.ranges.max_hosts = 0;
  compute.coverage.measured_types.clear();
  for (const auto& word : kWords<ShardingType>)
    compute.coverage.measured_types.push_back(word.value);
  std::erase_if(compute.drift, [](const StageDrift& drift) { return drift.stage != "compute"; });
  return compute;
}

std::vector<std::string> DeviceWarnings(const PlanRequest& request, const CostModelInfo& own,
                                        const std::vector<DeviceModel>& devices, const Plan& plan) {
  std::vector<std::string> warnings;
  for (const DeviceModel& of : devices) {
    const CostModelInfo info = ComputeInfo(of.model->info());
    if (IsSame(info, own)) continue;
    for (const auto& lines : {ConditionWarnings(request, info, plan), QualityWarnings(info)}) {
      for (const auto& line : lines) warnings.push_back(fmt::format("{}: {}", of.device, line));
    }
  }
  return warnings;
}

}  // namespace neuroshard
