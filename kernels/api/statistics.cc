#include "kernels/api/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

namespace neuroshard {
namespace {

std::vector<double> Sorted(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  return sorted;
}

double SortedPercentile(const std::vector<double>& sorted, double percent) {
  if (sorted.empty()) return 0;
  const double position =
      std::clamp(percent, 0.0, 100.0) / 100.0 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], position - static_cast<double>(below));
}

// The largest l >= 0 with P(Binomial(n, 1/2) < l) <= tail. In logarithms, because 2^-n underflows.
std::size_t LowerOrderStatistic(std::size_t n, double tail) {
  double log_term = -static_cast<double>(n) * std::log(2.0);  // of P(Binomial = k)
  double cumulative = 0;
  for (std::size_t k = 0; k < n; ++k) {
    cumulative += std::exp(log_term);
    if (cumulative > tail) return k;
    log_term += std::log(static_cast<double>(n - k) / static_cast<double>(k + 1));
  }
  return n;
}

}  // namespace

double Percentile(std::span<const double> values, double percent) {
  return SortedPercentile(Sorted(values), percent);
}

double Median(std::span<const double> values) { return Percentile(values, 50); }

double RelativeSpread(std::span<const double> values) {
  const std::vector<double> sorted = Sorted(values);
  const double median = SortedPercentile(sorted, 50);
  if (median == 0) return 0;
  return (SortedPercentile(sorted, 90) - SortedPercentile(sorted, 10)) / median;
}

double MedianHalfWidth95(std::span<const double> values) {
  const std::size_t order = LowerOrderStatistic(values.size(), 0.025);
  if (order == 0) return std::numeric_limits<double>::infinity();
  const std::vector<double> sorted = Sorted(values);
  return (sorted[sorted.size() - order] - sorted[order - 1]) / 2;
}

Status StoppingRule::AddMeasurementMs(double duration_ms) {
  if (!std::isfinite(duration_ms) || duration_ms < 0) {
    return InvalidArgument("duration_ms: must be finite and not negative, got {}", duration_ms);
  }
  samples_ms_.push_back(duration_ms);
  total_ms_ += duration_ms;
  Update();
  return absl::OkStatus();
}

void StoppingRule::Update() {
  if (finished_) return;
  const auto fed = static_cast<std::int64_t>(samples_ms_.size());
  finished_ = true;
  if (fed >= settings_.max_iterations) {
    reason_ = StopReason::kMaxIterations;
  } else if (fed < settings_.min_iterations) {
    finished_ = false;
  } else if (MedianHalfWidth95(samples_ms_) <=
             settings_.target_relative_error * Median(samples_ms_)) {
    reason_ = StopReason::kConverged;
  } else if (total_ms_ >= static_cast<double>(settings_.max_time_ms)) {
    reason_ = StopReason::kMaxTime;
  } else {
    finished_ = false;
  }
}

TimedSeries Summarize(std::vector<double> samples_ms, StopReason reason, int warmup_iterations) {
  TimedSeries series;
  series.median_ms = Median(samples_ms);
  series.relative_spread = RelativeSpread(samples_ms);
  series.samples_ms = std::move(samples_ms);
  series.stop_reason = reason;
  series.warmup_iterations = warmup_iterations;
  return series;
}

}  // namespace neuroshard
