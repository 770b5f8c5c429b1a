// Comparison of a model's predictions with the measurements of a store, value by value.
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

// Values of one stage: "compute", "forward_comm", "backward_comm", "reduce_scatter", "all_gather"
// or "all_reduce". Communication has a value per rank.
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
  // Samples with rank counts that the model does not know, or of collectives that it prices only
  // without start offsets.
  std::int64_t skipped_comm_samples = 0;

  // Returns metrics by stage; communication is pooled over rank counts and ranks, and its `samples`
  // counts collectives.
  std::map<std::string, RegressionMetrics> Metrics() const;
};

// Compares each record at its own batch size, optimizer and hosts. Collectives other than
// all-to-all are priced as in plans: by the load of a shard of a sharding type that needs them.
ModelComparison CompareModel(const CostModel& model, std::span<const ComputeRecord> compute,
                             std::span<const CommRecord> comm);

// Returns the conditions that the records were measured at and the model was not, in sentences for
// people; empty when they agree or are not stated.
std::vector<std::string> ConditionMismatches(const CostModelInfo& info,
                                             std::span<const ComputeRecord> compute,
                                             std::span<const CommRecord> comm);

}  // namespace neuroshard
