// What the prices of an answer rest on: the first thing that whoever reads it has to know.
#pragma once

#include <string>
#include <vector>

#include "common/domain/plan_report.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"
#include "server/planner/device_models.h"
#include "server/planner/gaps.h"

namespace neuroshard {

// What a request says of its devices where it names none.
std::string UnnamedDevices(const Topology& topology);

// The request's devices, "h100-sxm" or "cuda devices", where the model, which is not of formulas,
// was measured on something else. Empty: it was measured on them, or it is not known.
std::string OtherDevices(const Topology& topology, const CostModelInfo& model);

// Says what was measured, on what and until when, or whose published figures are used; whether a
// CPU's compute is mixed with a fabric of GPUs; and how the request differs: in devices, where it
// names any, and in the model's `gaps`. `why_not_measured`: why no measured model of the request's
// devices was taken; empty: there is none, or one was. `devices`: what priced compute where devices
// have models of their own, with their gaps; `model` then priced communication, and each of these
// the distribution of ids to its ranks.
PriceBasis PriceBasisOf(const PlanRequest& request, const CostModelInfo& model,
                        const std::vector<Gap>& gaps, const std::string& why_not_measured = "",
                        const std::vector<DeviceModel>& devices = {});

// The same for sets of shards, which name no devices and do not communicate.
PriceBasis PriceBasisOf(const CostModelInfo& model, const std::vector<Gap>& gaps);

}  // namespace neuroshard
