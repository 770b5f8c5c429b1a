// Price basis: the measurements or published figures that the prices of an answer rest on, which
// readers must know first.
#pragma once

#include <string>
#include <vector>

#include "common/domain/plan_report.h"
#include "common/domain/plan_request.h"
#include "server/planner/device_models.h"
#include "server/planner/gaps.h"

namespace neuroshard {

// Returns how a request describes its devices where it names none.
std::string UnnamedDevices(const Topology& topology);

// Returns the request's devices, "h100-sxm" or "cuda devices", where the model was measured on
// others. Empty: it was measured on them, is of formulas, or it is not known.
std::string OtherDevices(const Topology& topology, const CostModelInfo& model);

// Returns what was measured, on what and until when, or whose published figures are used; whether a
// CPU's compute is mixed with a fabric of GPUs; and how the request differs, in the devices that it
// names and in the model's `gaps`. `why_not_measured`: why no measured model of the request's
// devices was taken; empty: there is none, or one was. `devices`: the models of compute, with their
// gaps, where devices have their own; `model` then priced communication, and each of them the
// distribution of ids to its ranks.
PriceBasis PriceBasisOf(const PlanRequest& request, const CostModelInfo& model,
                        const std::vector<Gap>& gaps, const std::string& why_not_measured = "",
                        const std::vector<DeviceModel>& devices = {});

// Returns the basis for sets of shards, which name no devices and do not communicate.
PriceBasis PriceBasisOf(const CostModelInfo& model, const std::vector<Gap>& gaps);

}  // namespace neuroshard
