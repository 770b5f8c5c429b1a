#include "server/pretrain/training_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace neuroshard {
namespace {

std::string Cell(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "-";
}

void AddMetrics(const std::string& prefix, const NetworkReport& report,
                std::map<std::string, std::string>& metrics) {
  const RegressionMetrics& held_out = report.held_out;
  metrics[prefix + ".samples"] = fmt::format("{}", held_out.samples);
  metrics[prefix + ".train_samples"] = fmt::format("{}", report.train_samples);
  metrics[prefix + ".validation_samples"] = fmt::format("{}", report.validation_samples);
  metrics[prefix + ".best_epoch"] = fmt::format("{}", report.best_epoch);
  const std::pair<const char*, double> values[] = {{".mse", held_out.mse},
                                                   {".mape_percent", held_out.mape_percent},
                                                   {".r2", held_out.r2},
                                                   {".kendall_tau", held_out.kendall_tau}};
  for (const auto& [key, value] : values) {
    if (std::isfinite(value)) metrics[prefix + key] = fmt::format("{:.6g}", value);
  }
}

nlohmann::ordered_json Number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

}  // namespace

std::vector<const NetworkReport*> AllReports(const TrainedCostModel& model) {
  std::vector<const NetworkReport*> reports = {&model.compute_report};
  for (const TrainedCommNetwork& comm : model.comm) reports.push_back(&comm.report);
  return reports;
}

std::string HeldOutTable(const TrainedCostModel& model) {
  std::string table = fmt::format("{:<20} {:>7} {:>8} {:>12} {:>8} {:>8} {:>12}\n", "network",
                                  "train", "held out", "MSE (ms^2)", "MAPE %", "R2", "Kendall tau");
  for (const NetworkReport* report : AllReports(model)) {
    const RegressionMetrics& held_out = report->held_out;
    table += fmt::format("{:<20} {:>7} {:>8} {:>12.4g} {:>8} {:>8} {:>12}\n", report->name,
                         report->train_samples, held_out.samples, held_out.mse,
                         Cell(held_out.mape_percent, 2), Cell(held_out.r2, 4),
                         Cell(held_out.kendall_tau, 4));
  }
  return table;
}

std::map<std::string, std::string> ManifestMetrics(const TrainedCostModel& model) {
  std::map<std::string, std::string> metrics;
  AddMetrics("compute", model.compute_report, metrics);
  for (const TrainedCommNetwork& comm : model.comm) {
    AddMetrics(fmt::format("{}_comm.ranks_{}", ToText(comm.direction), comm.num_ranks), comm.report,
               metrics);
  }
  return metrics;
}

nlohmann::ordered_json MetricsToJson(const std::optional<RegressionMetrics>& metrics) {
  if (!metrics) return nullptr;
  return {{"samples", metrics->samples},
          {"mse", Number(metrics->mse)},
          {"mape_percent", Number(metrics->mape_percent)},
          {"r2", Number(metrics->r2)},
          {"kendall_tau", Number(metrics->kendall_tau)}};
}

std::string MarkdownReport(const TrainedCostModel& model, const std::string& title,
                           const std::map<std::string, std::string>& provenance) {
  std::string text = fmt::format("# {}\n\n", title);
  text +=
      "Errors on held-out samples, which were used neither for the weights nor for the choice of "
      "the "
      "epoch.\nCommunication is pooled over ranks; held out counts collectives.\n\n"
      "| network | train | held out | MSE (ms^2) | MAPE % | R2 | Kendall tau |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const NetworkReport* report : AllReports(model)) {
    const RegressionMetrics& held_out = report->held_out;
    text += fmt::format("| {} | {} | {} | {:.4g} | {} | {} | {} |\n", report->name,
                        report->train_samples, held_out.samples, held_out.mse,
                        Cell(held_out.mape_percent, 2), Cell(held_out.r2, 4),
                        Cell(held_out.kendall_tau, 4));
  }
  text += "\n| provenance | |\n|---|---|\n";
  for (const auto& [key, value] : provenance) text += fmt::format("| {} | {} |\n", key, value);
  text += "\n";
  for (const NetworkReport* report : AllReports(model)) {
    text += fmt::format("![{}]({})\n", report->name, PlotFileName(*report));
  }
  return text;
}

std::string PlotFileName(const NetworkReport& report) {
  std::string name = report.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name + ".svg";
}

}  // namespace neuroshard
