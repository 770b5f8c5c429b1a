// Cost models by kind of device: a request whose hosts name several kinds, each with a model of its
// own for compute (PlanRequest::device_cost_models).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// What prices the compute of the ranks of one kind of devices.
struct DeviceModel {
  std::string device;  // Device::name
  int num_ranks = 0;
  std::shared_ptr<const CostModel> model;
};

// Model `own` of the request, and what it is bound to for all ranks.
struct OwnModel {
  std::shared_ptr<const CostModel> model;
  BoundCostModel bound;
};

// A model for each of the request's device_cost_models, in their order, bound to the conditions of
// `own`: ranks of those devices compute as theirs says, all others as `own`, which also prices
// communication. Devices in the order of ranks. Where one model has the compute of all ranks, the
// bound model is one of one kind, and `own.bound` itself where that is `own`. FAILED_PRECONDITION,
// naming each entry whose model cannot price a rank of the request.
struct BoundDevices {
  BoundCostModel bound;
  std::vector<DeviceModel> devices;
};
StatusOr<BoundDevices> BindDevices(
    const PlanRequest& request, const OwnModel& own,
    const std::vector<StatusOr<std::shared_ptr<const CostModel>>>& models);

// What is said of a model that prices compute alone: nothing of its communication.
CostModelInfo ComputeInfo(const CostModelInfo& info);

// One line for each condition of the request, device by device, that the model of its compute was
// not measured at, and what else ConditionWarnings and QualityWarnings say of it. `own` has had its
// warnings.
std::vector<std::string> DeviceWarnings(const PlanRequest& request, const CostModelInfo& own,
                                        const std::vector<DeviceModel>& devices, const Plan& plan);

}  // namespace neuroshard
