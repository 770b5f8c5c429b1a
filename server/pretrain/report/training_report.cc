#include "server/pretrain/report/training_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/base/positions.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kSamplesOfAQualityWarning = 10;
constexpr std::size_t kSizeClasses = 5;
constexpr std::size_t kWorst = 5;
constexpr const char* kHeldOutFile = "held_out.csv";
constexpr const char* kLearningCurveFile = "learning_curve.csv";

std::string Cell(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "-";
}

// A row of eight texts for each network.
std::string HeldOutRows(const TrainingOutcome& outcome, const char* row) {
  std::string rows;
  for (const NetworkReport& report : outcome.reports) {
    const RegressionMetrics& held_out = report.held_out;
    rows += fmt::format(fmt::runtime(row), report.name, report.train_samples, held_out.samples,
                        fmt::format("{:.4g}", held_out.mse), Cell(held_out.mape_percent, 2),
                        Cell(held_out.r2, 4), Cell(held_out.kendall_tau, 4),
                        report.coverage ? Cell(100 * *report.coverage, 1) : "-");
  }
  return rows;
}

nlohmann::ordered_json Number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

// Whether a report's samples are listed: those of a part are in the report that it is a part of.
bool IsListed(const NetworkReport& report) {
  return !report.is_part && !report.measured_ms.empty();
}

// Rows of the errors of each fifth of the held-out samples by measured cost.
std::string ErrorBySize(const NetworkReport& report) {
  std::vector<std::size_t> order = Positions(report.measured_ms.size());
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return report.measured_ms[a] < report.measured_ms[b];
  });
  std::string rows;
  for (std::size_t part = 0; part < kSizeClasses; ++part) {
    const std::size_t begin = order.size() * part / kSizeClasses;
    const std::size_t end = order.size() * (part + 1) / kSizeClasses;
    if (begin == end) continue;
    std::vector<double> predicted;
    std::vector<double> measured;
    for (std::size_t i = begin; i < end; ++i) {
      predicted.push_back(report.predicted_ms[order[i]]);
      measured.push_back(report.measured_ms[order[i]]);
    }
    rows += fmt::format("| {} | {:.4g} to {:.4g} | {} | {} |\n", report.name, measured.front(),
                        measured.back(), end - begin,
                        Cell(MeasureRegression(predicted, measured).mape_percent, 2));
  }
  return rows;
}

std::string LearningCurveRows(const LearningCurve& curve) {
  std::string rows;
  for (const LearningPoint& point : curve.points) {
    rows += fmt::format("| {} | {} | {} | {} |\n", curve.name, point.train_samples,
                        Cell(point.mape_percent, 2), Cell(point.kendall_tau, 4));
  }
  return rows;
}

std::string WorstCases(const NetworkReport& report) {
  std::vector<std::pair<double, std::size_t>> errors;
  for (std::size_t i = 0; i < report.measured_ms.size(); ++i) {
    if (report.measured_ms[i] <= 0) continue;
    errors.push_back(
        {std::abs(report.predicted_ms[i] - report.measured_ms[i]) / report.measured_ms[i], i});
  }
  std::sort(errors.rbegin(), errors.rend());
  std::string rows;
  for (std::size_t i = 0; i < std::min(kWorst, errors.size()); ++i) {
    const std::size_t at = errors[i].second;
    rows += fmt::format("| {} | {:.4g} | {:.4g} | {:.1f} |\n", report.name, report.measured_ms[at],
                        report.predicted_ms[at], 100 * errors[i].first);
  }
  return rows;
}

void AddMetrics(const NetworkReport& report, std::map<std::string, std::string>& metrics) {
  const RegressionMetrics& held_out = report.held_out;
  const std::string& prefix = report.key;
  metrics[prefix + ".samples"] = fmt::format("{}", held_out.samples);
  metrics[prefix + ".train_samples"] = fmt::format("{}", report.train_samples);
  metrics[prefix + ".validation_samples"] = fmt::format("{}", report.validation_samples);
  metrics[prefix + ".best_epoch"] = fmt::format("{}", report.best_epoch);
  const std::pair<const char*, double> values[] = {
      {".mse", held_out.mse},
      {".mape_percent", held_out.mape_percent},
      {".r2", held_out.r2},
      {".kendall_tau", held_out.kendall_tau},
      {".interval_coverage", report.coverage.value_or(std::nan(""))}};
  for (const auto& [key, value] : values) {
    if (std::isfinite(value)) metrics[prefix + key] = fmt::format("{:.6g}", value);
  }
}

}  // namespace

std::string HeldOutTable(const TrainingOutcome& outcome) {
  constexpr const char* kRow = "{:<30} {:>7} {:>8} {:>12} {:>8} {:>8} {:>12} {:>9}\n";
  return fmt::format(fmt::runtime(kRow), "network", "train", "held out", "MSE (ms^2)", "MAPE %",
                     "R2", "Kendall tau", "covered %") +
         HeldOutRows(outcome, kRow);
}

std::map<std::string, std::string> ManifestMetrics(const TrainingOutcome& outcome) {
  std::map<std::string, std::string> metrics;
  for (const NetworkReport& report : outcome.reports) AddMetrics(report, metrics);
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

std::string MarkdownReport(const TrainingOutcome& outcome, const std::string& title,
                           const std::map<std::string, std::string>& provenance) {
  std::string text = fmt::format("# {}\n\n", title);
  if (!outcome.manifest.unusable_reason.empty()) {
    text += fmt::format("**Not usable: {}.** Planners refuse this model unless told otherwise.\n\n",
                        outcome.manifest.unusable_reason);
  }
  text +=
      "Errors on held-out samples, which were used neither for the weights nor for the choice of "
      "the epoch.\nCommunication is pooled over ranks; held out counts collectives. Covered: "
      "measurements inside the model's interval.\n\n"
      "| network | train | held out | MSE (ms^2) | MAPE % | R2 | Kendall tau | covered % |\n"
      "|---|---|---|---|---|---|---|---|\n";
  text += HeldOutRows(outcome, "| {} | {} | {} | {} | {} | {} | {} | {} |\n");
  for (const std::string& remark : outcome.remarks) text += "\n" + remark + "\n";
  text += "\n| error by size | measured, ms | values | MAPE % |\n|---|---|---|---|\n";
  for (const NetworkReport& report : outcome.reports) {
    if (IsListed(report)) text += ErrorBySize(report);
  }
  if (!outcome.learning_curves.empty()) {
    text += "\n| learning curve | training samples | MAPE % | Kendall tau |\n|---|---|---|---|\n";
    for (const LearningCurve& curve : outcome.learning_curves) text += LearningCurveRows(curve);
  }
  text += "\n| worst cases | measured, ms | predicted, ms | error % |\n|---|---|---|---|\n";
  for (const NetworkReport& report : outcome.reports) {
    if (IsListed(report)) text += WorstCases(report);
  }
  text += "\n| provenance | |\n|---|---|\n";
  for (const auto& [key, value] : provenance) text += fmt::format("| {} | {} |\n", key, value);
  text += fmt::format("\nEvery held-out sample: [{0}]({0}).", kHeldOutFile);
  if (!outcome.learning_curves.empty()) {
    text += fmt::format(" The learning curve: [{0}]({0}).", kLearningCurveFile);
  }
  return text + "\n";
}

std::map<std::string, std::string> ReportTables(const TrainingOutcome& outcome) {
  std::map<std::string, std::string> tables;
  std::string& held_out = tables[kHeldOutFile] = "network,measured_ms,predicted_ms\n";
  for (const NetworkReport& report : outcome.reports) {
    for (std::size_t i = 0; IsListed(report) && i < report.measured_ms.size(); ++i) {
      held_out += fmt::format("\"{}\",{:.6g},{:.6g}\n", report.name, report.measured_ms[i],
                              report.predicted_ms[i]);
    }
  }
  if (outcome.learning_curves.empty()) return tables;
  std::string& curves = tables[kLearningCurveFile] =
      "network,train_samples,mape_percent,kendall_tau\n";
  for (const LearningCurve& curve : outcome.learning_curves) {
    for (const LearningPoint& point : curve.points) {
      curves += fmt::format("\"{}\",{},{:.6g},{:.6g}\n", curve.name, point.train_samples,
                            point.mape_percent, point.kendall_tau);
    }
  }
  return tables;
}

std::string UnusableReason(const TrainingOutcome& outcome, double min_compute_tau) {
  const auto compute = std::ranges::find_if(
      outcome.reports, [](const NetworkReport& r) { return r.key == "compute"; });
  // Compute that was not learned anew is judged already.
  if (compute == outcome.reports.end()) return "";
  if (compute->held_out.samples < kSamplesOfAQualityWarning) return "";
  const auto [least, greatest] =
      std::minmax_element(compute->predicted_ms.begin(), compute->predicted_ms.end());
  if (*least == *greatest) return "its compute costs do not depend on the shards";
  const double tau = compute->held_out.kendall_tau;
  if (!std::isfinite(tau)) return "all held-out compute samples cost the same";
  const auto n = static_cast<double>(compute->held_out.samples);
  if (tau + std::sqrt(2 * (1 - tau * tau) / n) >= min_compute_tau) return "";
  return fmt::format(
      "Kendall tau of compute on {} held-out samples is {:.3f}, clearly below {:.3g}",
      compute->held_out.samples, tau, min_compute_tau);
}

}  // namespace neuroshard
