// Outcome of a training: the model, before it has a name, and the reports on it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/networks/model_manifest.h"
#include "server/networks/safetensors.h"
#include "server/pretrain/report/regression_metrics.h"

namespace neuroshard {

// Accuracy of one network on samples that it has not learned from.
struct NetworkReport {
  std::string name;  // "compute", "forward_comm x4"; for people
  std::string key;   // key of its values in model.yaml's metrics: "compute", "forward_comm.ranks_4"
  std::int64_t train_samples = 0;
  std::int64_t validation_samples = 0;
  std::int64_t epochs = 0;
  std::int64_t best_epoch = 0;
  // Metrics on the held-out samples. Compute: the total cost. Communication: pooled over ranks, and
  // `samples` counts collectives.
  RegressionMetrics held_out;
  std::vector<double> predicted_ms;  // values behind held_out
  std::vector<double> measured_ms;
  // Share of measured_ms inside the model's interval, where it has one.
  std::optional<double> coverage = {};
  // Its samples are a part of another report's.
  bool is_part = false;
};

// Error of a network by the number of samples that it learned from, with the same configuration and
// the same held-out samples.
struct LearningPoint {
  std::int64_t train_samples = 0;
  double mape_percent = 0;
  double kendall_tau = 0;
};

struct LearningCurve {
  std::string name;                   // the report whose held-out samples it uses
  std::vector<LearningPoint> points;  // the last one is of all training samples
};

struct TrainingOutcome {
  ModelManifest manifest;  // without name, version, metrics and provenance
  std::map<std::string, TensorFile> files;
  std::vector<NetworkReport> reports;          // compute first
  std::vector<std::string> remarks;            // sentences for REPORT.md
  std::vector<LearningCurve> learning_curves;  // empty: not asked for
};

}  // namespace neuroshard
