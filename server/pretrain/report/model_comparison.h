// Predictions of a model beside the measurements of a store, value by value.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/store/profile_store.h"
#include "server/cost/cost_model.h"

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

  // Null where there are no samples.
  const StageComparison* Find(const std::string& stage) const;
};

// Each record at its own batch size, optimizer and hosts. Other collectives than all-to-all are
// priced as plans are: by the load that a shard of such a sharding type brings.
ModelComparison CompareModel(const CostModel& model, std::span<const ComputeRecord> compute,
                             std::span<const CommRecord> comm);

}  // namespace neuroshard
