// Cost models by kind of device, for requests whose hosts name several kinds
// (PlanRequest::device_cost_models).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"
#include "server/planner/gaps.h"

namespace neuroshard {

// The model that prices the compute of the ranks of one kind of device.
struct DeviceModel {
  std::string device;  // Device::name
  int num_ranks = 0;
  CostModelInfo info;          // ComputeInfo
  std::vector<Gap> gaps = {};  // filled for an answer
};

// A model that is bound to the request's conditions. Every price of the request comes from this
// object.
struct Pricing {
  std::shared_ptr<const CostModel> model;
  BoundCostModel bound;
  std::string why_not_measured = {};      // PriceBasisOf's
  std::vector<DeviceModel> devices = {};  // where the request has device_cost_models

  const CostModelInfo& info() const { return model->info(); }
};

// Binds the model that `find` has for each of the request's device_cost_models to the conditions of
// `own`. It prices the compute of the ranks with these devices; `own` prices all others, and
// communication. `own.devices` are in the order of ranks. Where one model has the compute of all
// ranks, `own.bound` has one kind, and is unchanged where that model is `own` itself.
// FAILED_PRECONDITION names each entry whose model cannot price a rank of the request.
Status BindDevices(
    const PlanRequest& request,
    const std::function<StatusOr<std::shared_ptr<const CostModel>>(const CostModelRef&)>& find,
    Pricing& own);

// Returns the info of a model that prices compute alone: its communication is left out.
CostModelInfo ComputeInfo(const CostModelInfo& info);

// Adds the gaps of each model for a plan, except gaps without a stage, which the request's model
// has too.
std::vector<DeviceModel> WithGaps(std::vector<DeviceModel> devices, const PlanRequest& request,
                                  const Plan& plan);

// Returns GapWarnings and QualityWarnings by device, except those that `own` has given.
std::vector<std::string> DeviceWarnings(const CostModelInfo& own,
                                        const std::vector<DeviceModel>& devices);

}  // namespace neuroshard
