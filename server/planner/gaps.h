// Gaps: conditions of a request that a cost model has not measured, and how they are priced
// instead. They are found once for a model and a plan; warnings, price basis and version hints only
// repeat the list.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/domain/measurement.h"
#include "common/domain/plan_report.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// A condition that was not measured. Costs then compare plans, but are no forecast.
struct Gap {
  // A condition of the request beyond those that were measured: "global batch size". Empty: none.
  std::string condition = {};
  // Text for the price basis: "rows in host memory were not measured: ...". Empty: none.
  std::string difference = {};
  // Text for a warning, behind the model's name and version. Empty: none.
  std::string warning = {};
  // Stages that a formula prices instead: in part (kMixed), or alone (kPublished). Empty: the gap
  // is a matter of the plan, whichever model prices it.
  std::vector<CostStage> stages = {};
  BasisKind kind = BasisKind::kMixed;
};

// Returns the gaps in the order in which answers name them. Conditions, rank and host counts that
// the model does not state are no gaps. A model of formulas has one gap in every stage, and no
// warnings.
std::vector<Gap> GapsOf(const PlanRequest& request, const CostModelInfo& model,
                        const Plan& plan = {});

// Returns the gaps for sets of shards.
std::vector<Gap> GapsOf(std::span<const ComputeSample> sets, const CostModelInfo& model);

// Returns the stages that a request's prices have, in the order of CostStage.
std::vector<CostStage> StagesOf(const PlanRequest& request);
bool IsComm(CostStage stage);

// Returns what the price of a stage rests on.
BasisKind KindOf(CostStage stage, const std::vector<Gap>& gaps);

// Returns a line for each gap that has a warning.
std::vector<std::string> GapWarnings(const std::vector<Gap>& gaps, const CostModelInfo& model);

// Returns a line with the ReasonsAgainst the model, and one for each stage that HasDrifted.
std::vector<std::string> QualityWarnings(const CostModelInfo& model);

// Returns "published figures of h100-sxm", or the request's figures where it overrides the table's.
// There is at least one device.
std::string FiguresOf(const Topology& topology, const std::vector<std::string>& devices);

}  // namespace neuroshard
