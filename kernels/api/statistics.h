// Robust statistics of small series of durations, in any order, and the rule that ends such a
// series. Pure: fed durations only, so it is tested without a clock.
#pragma once

#include <span>
#include <vector>

#include "common/base/status.h"
#include "common/domain/measurement.h"

namespace neuroshard {

// Middle value, or the mean of the two middle ones. 0 when empty.
double Median(std::span<const double> values);

// Linear interpolation between the closest ranks (type 7 of Hyndman and Fan); percent in [0, 100].
// 0 when empty.
double Percentile(std::span<const double> values, double percent);

// (p90 - p10) / median; 0 when the median is 0.
double RelativeSpread(std::span<const double> values);

// Half the width of the distribution-free 95% confidence interval of the median: between the order
// statistics l and n + 1 - l with the largest l for which P(Binomial(n, 1/2) < l) <= 2.5%. Infinite
// below 6 values, which cannot give that confidence.
double MedianHalfWidth95(std::span<const double> values);

// Finished when, in this order of precedence,
// - kMaxIterations: max_iterations were fed;
// - kConverged: at least min_iterations were fed and the 95% confidence half-width of the median is
//   at most target_relative_error of the median (never with fewer than 6 iterations, see
//   MedianHalfWidth95);
// - kMaxTime: at least min_iterations were fed and they sum up to max_time_ms.
// It stays finished, for the first of these reasons, whatever is fed afterwards: a series goes on
// while its partner needs more iterations.
class StoppingRule {
 public:
  explicit StoppingRule(const MeasurementSettings& settings) : settings_(settings) {}

  // INVALID_ARGUMENT, and the value is not counted, unless it is finite and not negative.
  [[nodiscard]] Status AddMeasurementMs(double duration_ms);

  bool Finished() const { return finished_; }
  // kMaxTime until it is Finished: then somebody else's clock ends the series.
  StopReason reason() const { return reason_; }
  double total_ms() const { return total_ms_; }
  const std::vector<double>& samples_ms() const { return samples_ms_; }

 private:
  void Update();

  MeasurementSettings settings_;
  std::vector<double> samples_ms_;
  double total_ms_ = 0;
  bool finished_ = false;
  StopReason reason_ = StopReason::kMaxTime;
};

// The record of a finished series.
TimedSeries Summarize(std::vector<double> samples_ms, StopReason reason, int warmup_iterations);

}  // namespace neuroshard
