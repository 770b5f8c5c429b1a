// Accuracy of one network on samples that it has not learned from.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "server/pretrain/report/regression_metrics.h"

namespace neuroshard {

struct NetworkReport {
  std::string name;  // "compute", "forward_comm x4"; for people
  std::string key;   // of its values in model.yaml's metrics: "compute", "forward_comm.ranks_4"
  std::int64_t train_samples = 0;
  std::int64_t validation_samples = 0;
  std::int64_t epochs = 0;
  std::int64_t best_epoch = 0;
  // On the held-out samples. Compute: the total cost. Communication: pooled over ranks, and
  // `samples` counts collectives.
  RegressionMetrics held_out;
  std::vector<double> predicted_ms;  // what held_out is computed from
  std::vector<double> measured_ms;
  // The share of measured_ms inside the model's interval, where it gives one.
  std::optional<double> coverage = {};
  // A part of another report's samples.
  bool is_part = false;
};

}  // namespace neuroshard
