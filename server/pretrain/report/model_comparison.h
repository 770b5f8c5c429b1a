// Predictions of a model beside the measurements of a store, value by value.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/store/profile_store.h"
#include "server/cost/cost_model.h"
#include "server/pretrain/report/regression_metrics.h"

namespace neuroshard {

// "compute", "forward_comm", "backward_comm", "reduce_scatter", "all_gather" or "all_reduce".
// Communication has a value a rank.
struct StageComparison {
  std::string stage;
  std::int64_t samples = 0;
  std::vector<double> predicted_ms;
  std::vector<double> measured_ms;
  std::int64_t since_unix_ms = 0;  // of the measurements; 0: not known
  std::int64_t until_unix_ms = 0;
};

struct ModelComparison {
  std::vector<StageComparison> stages;  // those that there are samples of
  // Of rank counts that the model does not know, or collectives that it prices only without start
  // offsets.
  std::int64_t skipped_comm_samples = 0;

  // Of each stage that there are samples of; communication is pooled over rank counts and ranks, and
  // its `samples` counts collectives.
  std::map<std::string, RegressionMetrics> Metrics() const;
};

// Each record at its own batch size, optimizer and hosts. Other collectives than all-to-all are
// priced as plans are: by the load that a shard of such a sharding type brings.
ModelComparison CompareModel(const CostModel& model, std::span<const ComputeRecord> compute,
                             std::span<const CommRecord> comm);

// Conditions that the records were measured at and the model was not, in sentences for people;
// empty when they agree or are not stated.
std::vector<std::string> ConditionMismatches(const CostModelInfo& info,
                                             std::span<const ComputeRecord> compute,
                                             std::span<const CommRecord> comm);

}  // namespace neuroshard
