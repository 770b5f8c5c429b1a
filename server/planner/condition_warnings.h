// Warnings where a model's costs compare plans but are no forecast: it was measured under other
// conditions, or not at all.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/domain/measurement.h"
#include "common/domain/plan_report.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// One line for each of batch size, weight dtype and optimizer that is outside what the model was
// measured at, and for rank and host counts likewise; conditions that the model does not state give
// none. One for each of FormulaAdditions. One for the sharding types that the request names and the
// model was not made for, where `plan` does not use them. One where a fabric prices communication.
std::vector<std::string> ConditionWarnings(const PlanRequest& request, const CostModelInfo& model,
                                           const Plan& plan = {});

// The same for sets of shards.
std::vector<std::string> ConditionWarnings(std::span<const ComputeSample> sets,
                                           const CostModelInfo& model);

// The names of those conditions, rank and host counts: "global batch size".
std::vector<std::string> UnmeasuredConditions(const PlanRequest& request,
                                              const CostModelInfo& model);
std::vector<std::string> UnmeasuredConditions(std::span<const ComputeSample> sets,
                                              const CostModelInfo& model);

// Whether a table of the plan has its rows in host memory or on SSD, and on SSD.
bool HasRowsOffDevice(const Plan& plan);
bool HasRowsOnSsd(const Plan& plan);

// "0.105 GB/s a device (bandwidths.ssd_bytes_per_s, TorchRec's default, ...)".
std::string SsdBandwidthText(const Topology& topology);

// A formula in the price of a measured model.
struct FormulaAddition {
  // What no worker measured, and how it is priced: "rows in host memory were not measured: ...".
  std::string text;
  std::vector<CostStage> stages;  // that have it in their costs
};

// Of what the request or `plan` has that no worker measured (server/cost/unmeasured_compute.h). None
// for models that are formulas altogether.
std::vector<FormulaAddition> FormulaAdditions(const PlanRequest& request,
                                              const CostModelInfo& model, const Plan& plan = {});
std::vector<FormulaAddition> FormulaAdditions(std::span<const ComputeSample> sets,
                                              const CostModelInfo& model);

// One line with the ReasonsAgainst the model, and one for each stage that HasDrifted.
std::vector<std::string> QualityWarnings(const CostModelInfo& model);

}  // namespace neuroshard
