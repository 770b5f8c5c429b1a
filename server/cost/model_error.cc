#include "server/cost/model_error.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

namespace neuroshard {
namespace {

std::optional<double> NumberOf(const CostModelInfo& model, const std::string& key) {
  const auto found = model.details.find(key);
  if (found == model.details.end()) return std::nullopt;
  const std::string& text = found->second;
  double number = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (fault != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

std::string PoorReason(double compute_mape_percent, std::int64_t held_out_samples) {
  if (held_out_samples < kTellingSamples) {
    return fmt::format(
        "its compute was held against {} samples, and fewer than {} do not tell how good it is",
        held_out_samples, kTellingSamples);
  }
  if (compute_mape_percent <= kPoorMapePercent) return "";
  return fmt::format("its compute is {:.0f}% off on {} held-out samples, more than {:.0f}%",
                     compute_mape_percent, held_out_samples, kPoorMapePercent);
}

std::string PoorReason(const CostModelInfo& model) {
  const auto mape = NumberOf(model, "metrics.compute.mape_percent");
  const auto samples = NumberOf(model, "metrics.compute.samples");
  if (!mape || !samples) return "";
  return PoorReason(*mape, static_cast<std::int64_t>(*samples));
}

double UsualError(const CostModelInfo& model, const std::string& stage) {
  constexpr double kTypicalError = 0.25;
  const auto known = model.typical_errors.find(stage);
  return known == model.typical_errors.end() ? kTypicalError : known->second;
}

bool HasDrifted(const CostModelInfo& model, const StageDrift& drift) {
  const double error = UsualError(model, drift.stage);
  return drift.median_ratio > 1 + error || drift.median_ratio < 1 / (1 + error);
}

}  // namespace neuroshard
