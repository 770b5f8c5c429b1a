#include "server/cost/model_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>

#include "common/base/number_text.h"

namespace neuroshard {
namespace {

std::optional<double> FigureOf(const CostModelInfo& model, const std::string& key) {
  const auto found = model.details.find(key);
  return found == model.details.end() ? std::nullopt : NumberOf<double>(found->second);
}

// Stages of `metrics`, each with the path of its figures: "compute" -> "metrics.compute.". A model
// with a network for each number of ranks has "forward_comm.ranks_2" and so on instead of
// "forward_comm"; other levels below a stage are parts of its samples.
std::map<std::string, std::string> HeldOutStages(const CostModelInfo& model) {
  constexpr std::string_view kPrefix = "metrics.";
  constexpr std::string_view kError = ".mape_percent";
  std::map<std::string, std::string> stages;
  for (const auto& [key, value] : model.details) {
    if (!key.starts_with(kPrefix) || !key.ends_with(kError)) continue;
    if (key.size() < kPrefix.size() + kError.size()) continue;
    const std::string stage =
        key.substr(kPrefix.size(), key.size() - kPrefix.size() - kError.size());
    const std::size_t dot = stage.find('.');
    const bool of_ranks = dot != std::string::npos && stage.rfind('.') == dot &&
                          stage.compare(dot, 7, ".ranks_") == 0;
    if (dot != std::string::npos && !of_ranks) continue;
    stages[stage] = std::string(kPrefix) + stage + ".";
  }
  std::erase_if(stages, [&stages](const auto& entry) {
    const std::size_t dot = entry.first.find('.');
    return dot != std::string::npos && stages.contains(entry.first.substr(0, dot));
  });
  return stages;
}

void AddReasons(const CostModelInfo& model, const std::string& stage, const std::string& metrics,
                std::vector<std::string>& reasons) {
  const auto mape = FigureOf(model, metrics + "mape_percent");
  const auto samples = FigureOf(model, metrics + "samples");
  if (!mape || !samples) return;
  if (*samples < kTellingSamples) {
    reasons.push_back(fmt::format(
        "{} was held against {:.0f} samples, and fewer than {} do not tell how good it is", stage,
        *samples, kTellingSamples));
    return;
  }
  const double most = stage == "compute" ? kPoorComputeMapePercent : kPoorMapePercent;
  // Written so that not-a-number is beyond it.
  if (!(*mape <= most)) {
    reasons.push_back(fmt::format("{} is {:.0f}% off on {:.0f} held-out samples, more than {:.0f}%",
                                  stage, *mape, *samples, most));
  }
  constexpr double kLeastOfCoverage = 2.0 / 3;
  const auto covered = FigureOf(model, metrics + "interval_coverage");
  const double stated = model.properties.interval_coverage;
  if (covered && !(*covered >= kLeastOfCoverage * stated)) {
    reasons.push_back(
        fmt::format("the {:.0f}% intervals of {} hold {:.0f}% of {:.0f} held-out samples",
                    100 * stated, stage, 100 * *covered, *samples));
  }
}

}  // namespace

std::vector<std::string> ReasonsAgainst(const CostModelInfo& model) {
  std::vector<std::string> reasons;
  if (!model.unusable_reason.empty()) {
    reasons.push_back("it is marked as unusable: " + model.unusable_reason);
  }
  for (const auto& [stage, metrics] : HeldOutStages(model)) {
    AddReasons(model, stage, metrics, reasons);
  }
  if (model.kind != kUniversalKind) return reasons;
  if (!model.typical_errors.contains("compute")) reasons.push_back("its compute has no intervals");
  if (model.coverage.prices_comm() && model.coverage.comm_fabric.empty() &&
      !model.typical_errors.contains("forward_comm")) {
    reasons.push_back("its communication has no intervals");
  }
  return reasons;
}

double UsualError(const CostModelInfo& model, const std::string& stage) {
  constexpr double kTypicalError = 0.25;
  const auto known = model.typical_errors.find(stage);
  return known == model.typical_errors.end() ? kTypicalError : known->second;
}

bool HasDrifted(const CostModelInfo& model, const StageDrift& drift) {
  if (drift.samples < kTellingSamples) return false;
  // The logarithm of a ratio is taken as normal: p10 to p90 are 2.563 deviations, and a median has
  // the standard error of a mean times 1.2533.
  const double deviation = std::max(0.0, std::log(drift.p90_ratio / drift.p10_ratio)) / 2.563;
  const double error = 1.2533 * deviation / std::sqrt(static_cast<double>(drift.samples));
  constexpr double kOneSided95 = 1.645;
  return std::abs(std::log(drift.median_ratio)) >
         std::log1p(UsualError(model, drift.stage)) + kOneSided95 * error;
}

}  // namespace neuroshard
