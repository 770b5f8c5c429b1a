// Cost models by kind of device: a request whose hosts name several kinds, each with a model of its
// own for compute (PlanRequest::device_cost_models).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"
#include "server/planner/gaps.h"

namespace neuroshard {

// What prices the compute of the ranks of one kind of devices.
struct DeviceModel {
  std::string device;  // Device::name
  int num_ranks = 0;
  CostModelInfo info;          // ComputeInfo
  std::vector<Gap> gaps = {};  // of an answer
};

// A model, bound to the request's conditions: every price of the request is asked of this object.
struct Pricing {
  std::shared_ptr<const CostModel> model;
  BoundCostModel bound;
  std::string why_not_measured = {};      // PriceBasisOf's
  std::vector<DeviceModel> devices = {};  // where the request has device_cost_models

  const CostModelInfo& info() const { return model->info(); }
};

// Binds the model that `find` has for each of the request's device_cost_models to the conditions of
// `own`: ranks of those devices compute as theirs says, all others as `own`, which also prices
// communication. `own.devices` are in the order of ranks. Where one model has the compute of all
// ranks, `own.bound` is of one kind, and stays as it is where that is its own. FAILED_PRECONDITION,
// naming each entry whose model cannot price a rank of the request.
Status BindDevices(
    const PlanRequest& request,
    const std::function<StatusOr<std::shared_ptr<const CostModel>>(const CostModelRef&)>& find,
    Pricing& own);

// What is said of a model that prices compute alone: nothing of its communication.
CostModelInfo ComputeInfo(const CostModelInfo& info);

// With the gaps of each for a plan, but for those that are not of a stage: the request's model has
// them too.
std::vector<DeviceModel> WithGaps(std::vector<DeviceModel> devices, const PlanRequest& request,
                                  const Plan& plan);

// GapWarnings and QualityWarnings, device by device. `own` has had its warnings.
std::vector<std::string> DeviceWarnings(const CostModelInfo& own,
                                        const std::vector<DeviceModel>& devices);

}  // namespace neuroshard
