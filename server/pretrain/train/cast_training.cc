#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "server/pretrain/train/universal_stages.h"

namespace neuroshard {
namespace {

constexpr double kNsPerMs = 1e6;
// Every tenth is held out. One rate cannot remember a sample, so repeats may be apart.
constexpr std::size_t kHeldOut = 10;

// Least relative squares: the r that is nearest to t / v of every observation, by r v / t - 1.
double FitRate(const std::vector<CastObservation>& observations) {
  double sum = 0, sum_of_squares = 0;
  for (const CastObservation& one : observations) {
    const double values_per_ms = one.values / one.ms;
    sum += values_per_ms;
    sum_of_squares += values_per_ms * values_per_ms;
  }
  return sum / sum_of_squares;
}

}  // namespace

void TrainCasts(const std::vector<CastObservation>& observations, const TrainingConfig& config,
                TrainingOutcome& outcome) {
  MeasuredCasts& casts = outcome.manifest.casts;
  for (const auto& [dtype, rate] : {std::pair(DataType::kFp16, &casts.fp16_ns_per_value),
                                    std::pair(DataType::kBf16, &casts.bf16_ns_per_value)}) {
    std::array<std::vector<CastObservation>, 2> parts;  // to learn from, held out
    std::size_t count = 0;
    for (const CastObservation& one : observations) {
      if (one.wire_dtype == dtype) parts[count++ % kHeldOut == 0 ? 1 : 0].push_back(one);
    }
    if (static_cast<std::int64_t>(count) < config.min_samples) continue;
    const double ms_per_value = FitRate(parts[0]);
    *rate = ms_per_value * kNsPerMs;
    NetworkReport report;
    report.name = fmt::format("casts {}", ToText(dtype));
    report.key = fmt::format("casts.{}", ToText(dtype));
    report.train_samples = std::ssize(parts[0]);
    for (const CastObservation& one : parts[1]) {
      report.predicted_ms.push_back(ms_per_value * one.values);
      report.measured_ms.push_back(one.ms);
    }
    report.held_out = MeasureRegression(report.predicted_ms, report.measured_ms);
    outcome.reports.push_back(std::move(report));
  }
}

}  // namespace neuroshard
