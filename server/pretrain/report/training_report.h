// The report on a training run, for people and scripts.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "server/pretrain/report/regression_metrics.h"
#include "server/pretrain/report/training_outcome.h"

namespace neuroshard {

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
