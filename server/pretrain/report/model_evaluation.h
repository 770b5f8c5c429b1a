// Accuracy of a served model on the measurements of a store.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/store/profile_store.h"
#include "server/cost/cost_model.h"
#include "server/pretrain/report/regression_metrics.h"

namespace neuroshard {

// Absent: the store has no such sample that the model can price. Communication is pooled over rank
// counts and ranks; its `samples` counts collectives.
struct ModelEvaluation {
  std::optional<RegressionMetrics> compute;
  std::optional<RegressionMetrics> forward_comm;
  std::optional<RegressionMetrics> backward_comm;
  std::map<std::string, RegressionMetrics> collectives;  // others than all-to-all, by their words
  std::int64_t skipped_comm_samples = 0;                 // that the model cannot price
};

ModelEvaluation EvaluateModel(const CostModel& model, std::span<const ComputeRecord> compute,
                              std::span<const CommRecord> comm);

// Conditions that the records were measured at and the model was not, in sentences for people;
// empty when they agree or are not stated.
std::vector<std::string> ConditionMismatches(const CostModelInfo& info,
                                             std::span<const ComputeRecord> compute,
                                             std::span<const CommRecord> comm);

}  // namespace neuroshard
