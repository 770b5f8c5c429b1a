// Outcome of a training: the model, before it has a name, and the report on it, for people and
// scripts.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
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

// Returns a table of the held-out metrics of every network, for a terminal.
std::string HeldOutTable(const TrainingOutcome& outcome);

// Returns the keys and values of model.yaml's `metrics`: "compute.kendall_tau",
// "forward_comm.ranks_4.mse"... Undefined values are left out.
std::map<std::string, std::string> ManifestMetrics(const TrainingOutcome& outcome);

// Returns {"samples", "mse", "mape_percent", "r2", "kendall_tau"}; undefined values and an absent
// comparison are null.
nlohmann::ordered_json MetricsToJson(const std::optional<RegressionMetrics>& metrics);

// Returns REPORT.md of a model directory: metrics, error by size, learning curve, worst cases,
// provenance.
std::string MarkdownReport(const TrainingOutcome& outcome, const std::string& title,
                           const std::map<std::string, std::string>& provenance);

// Returns the CSV files beside REPORT.md, by name: held_out.csv, every held-out sample as measured
// and as predicted, and learning_curve.csv, where there is one.
std::map<std::string, std::string> ReportTables(const TrainingOutcome& outcome);

// Returns why the model is useless: its compute orders held-out samples worse than
// `min_compute_tau` (Kendall tau) by more than the standard error, at most sqrt(2 (1 - tau^2) / n)
// of n samples (Kendall, Rank Correlation Methods), or predicts the same for all of them. Empty: it
// is usable, or there are fewer than 10 held-out samples. Communication is only reported, since its
// noise may hide any order.
std::string UnusableReason(const TrainingOutcome& outcome, double min_compute_tau);

}  // namespace neuroshard
