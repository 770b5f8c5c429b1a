#include "server/planner/device_models.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "common/base/failure_reason.h"

namespace neuroshard {
namespace {

bool IsSame(const CostModelInfo& a, const CostModelInfo& b) {
  return a.name == b.name && a.version == b.version;
}

}  // namespace

Status BindDevices(
    const PlanRequest& request,
    const std::function<StatusOr<std::shared_ptr<const CostModel>>(const CostModelRef&)>& find,
    Pricing& own) {
  struct Kind {  // each model once
    CostModelInfo info;
    BoundCostModel bound;
    int position = -1;  // of those that ranks have
  };
  std::vector<Kind> models = {{own.info(), own.bound}};
  std::map<std::string_view, std::size_t> of_device;  // position in `models`
  std::vector<std::string> faults;
  FailureReason reason = FailureReason::kModelUnfit;
  for (std::size_t i = 0; i < request.device_cost_models.size(); ++i) {
    const DeviceCostModel& of = request.device_cost_models[i];
    const auto bind = [&]() -> Status {
      NS_ASSIGN_OR_RETURN(const auto model, find(of.model));
      const CostModelInfo& info = model->info();
      const auto known =
          std::ranges::find_if(models, [&](const Kind& kind) { return IsSame(kind.info, info); });
      of_device[of.device] = static_cast<std::size_t>(known - models.begin());
      if (known != models.end()) return absl::OkStatus();
      StatusOr<BoundCostModel> compute = BindCompute(*model, own.bound.conditions());
      models.push_back({info, compute.ok() ? *compute : own.bound});
      return compute.status();
    };
    const Status status = bind();
    if (status.ok()) continue;
    if (faults.empty()) reason = ReasonOf(status).value_or(FailureReason::kModelUnfit);
    faults.push_back(fmt::format("device_cost_models[{}].cost_model: {}", i, Message(status)));
  }
  if (!faults.empty()) {
    return WithReason(FailedPrecondition("{}", fmt::join(faults, "; ")), reason);
  }

  std::vector<int> kind_of_rank;
  std::vector<BoundCostModel> kinds;  // those that ranks have
  for (const Device& device : request.topology.devices) {
    const auto found = of_device.find(device.name);
    Kind& kind = models[found == of_device.end() ? 0 : found->second];
    if (kind.position < 0) {
      kind.position = static_cast<int>(kinds.size());
      kinds.push_back(kind.bound);
    }
    kind_of_rank.push_back(kind.position);
    const auto seen = std::ranges::find_if(
        own.devices, [&](const DeviceModel& of) { return of.device == device.name; });
    if (seen == own.devices.end()) {
      own.devices.push_back({device.name, 1, ComputeInfo(kind.info)});
    } else {
      ++seen->num_ranks;
    }
  }
  const bool all_own = kinds.size() == 1 && models.front().position == 0;
  if (!all_own) own.bound = BoundCostModel(own.bound, kinds, std::move(kind_of_rank));
  return absl::OkStatus();
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

std::vector<DeviceModel> WithGaps(std::vector<DeviceModel> devices, const PlanRequest& request,
                                  const Plan& plan) {
  for (DeviceModel& of : devices) {
    of.gaps = GapsOf(request, of.info, plan);
    std::erase_if(of.gaps,
                  [](const Gap& gap) { return gap.stages.empty() && !gap.difference.empty(); });
  }
  return devices;
}

std::vector<std::string> DeviceWarnings(const CostModelInfo& own,
                                        const std::vector<DeviceModel>& devices) {
  std::vector<std::string> warnings;
  for (const DeviceModel& of : devices) {
    if (IsSame(of.info, own)) continue;
    for (const auto& lines : {GapWarnings(of.gaps, of.info), QualityWarnings(of.info)}) {
      for (const auto& line : lines) warnings.push_back(fmt::format("{}: {}", of.device, line));
    }
  }
  return warnings;
}

}  // namespace neuroshard
