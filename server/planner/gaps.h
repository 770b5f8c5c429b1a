// Gaps: what a cost model has not measured of a request, and how it is priced instead. They are found
// once for a model and a plan; warnings, price basis and version hints only say what the list has.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/domain/measurement.h"
#include "common/domain/plan_report.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// Costs compare plans where a model has gaps, but they are no forecast.
struct Gap {
  // A condition of the request beyond those that were measured: "global batch size". Empty: none.
  std::string condition = {};
  // As the price basis says it: "rows in host memory were not measured: ...". Empty: not at all.
  std::string difference = {};
  // As a warning says it, behind the model's name and version. Empty: not at all.
  std::string warning = {};
  // Stages that a formula prices for it: in part (kMixed), or alone (kPublished). Empty: what there
  // is to say is of the plan, by whichever model.
  std::vector<CostStage> stages = {};
  BasisKind kind = BasisKind::kMixed;
};

// In the order in which answers name them. Conditions, rank and host counts that the model does not
// state are no gaps. A model of formulas has one gap in every stage, and no warnings.
std::vector<Gap> GapsOf(const PlanRequest& request, const CostModelInfo& model,
                        const Plan& plan = {});

// The same for sets of shards.
std::vector<Gap> GapsOf(std::span<const ComputeSample> sets, const CostModelInfo& model);

// Those that a request's prices have, in the order of CostStage.
std::vector<CostStage> StagesOf(const PlanRequest& request);
bool IsComm(CostStage stage);

// What a stage rests on.
BasisKind KindOf(CostStage stage, const std::vector<Gap>& gaps);

// One line for each gap that has a warning.
std::vector<std::string> GapWarnings(const std::vector<Gap>& gaps, const CostModelInfo& model);

// One line with the ReasonsAgainst the model, and one for each stage that HasDrifted.
std::vector<std::string> QualityWarnings(const CostModelInfo& model);

// "published figures of h100-sxm", or the request's for it, where it has put own ones in place of
// the table's. At least one device.
std::string FiguresOf(const Topology& topology, const std::vector<std::string>& devices);

}  // namespace neuroshard
