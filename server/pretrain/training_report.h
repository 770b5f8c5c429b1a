// What a training run tells people and scripts.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "server/pretrain/regression_metrics.h"
#include "server/pretrain/training_outcome.h"

namespace neuroshard {

// A table of the held-out metrics of every network, for a terminal.
std::string HeldOutTable(const TrainingOutcome& outcome);

// The keys and values of model.yaml's `metrics`: "compute.kendall_tau",
// "forward_comm.ranks_4.mse"...; what is undefined is left out.
std::map<std::string, std::string> ManifestMetrics(const TrainingOutcome& outcome);

// {"samples", "mse", "mape_percent", "r2", "kendall_tau"}; undefined values and an absent
// comparison are null.
nlohmann::ordered_json MetricsToJson(const std::optional<RegressionMetrics>& metrics);

// REPORT.md of a model directory: conditions, metrics, error by size, worst cases, plots.
std::string MarkdownReport(const TrainingOutcome& outcome, const std::string& title,
                           const std::map<std::string, std::string>& provenance);

// The SVG files that REPORT.md shows, by name.
std::map<std::string, std::string> ReportPlots(const TrainingOutcome& outcome);

}  // namespace neuroshard
