// What a training run tells people and scripts.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "server/pretrain/cost_model_training.h"
#include "server/pretrain/regression_metrics.h"

namespace neuroshard {

// Compute first, then communication.
std::vector<const NetworkReport*> AllReports(const TrainedCostModel& model);

// A table of the held-out metrics of every network, for a terminal.
std::string HeldOutTable(const TrainedCostModel& model);

// The keys and values of model.yaml's `metrics`: "compute.kendall_tau",
// "forward_comm.ranks_4.mse"...; what is undefined is left out.
std::map<std::string, std::string> ManifestMetrics(const TrainedCostModel& model);

// {"samples", "mse", "mape_percent", "r2", "kendall_tau"}; undefined values and an absent
// comparison are null.
nlohmann::ordered_json MetricsToJson(const std::optional<RegressionMetrics>& metrics);

// REPORT.md of a model directory: conditions, table, one plot per network ("compute.svg"...).
std::string MarkdownReport(const TrainedCostModel& model, const std::string& title,
                           const std::map<std::string, std::string>& provenance);

// "forward_comm x4" -> "forward_comm_x4.svg".
std::string PlotFileName(const NetworkReport& report);

}  // namespace neuroshard
