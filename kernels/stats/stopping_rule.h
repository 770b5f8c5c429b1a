// Stopping rule of a series of timed iterations. Fed durations only: it has no clock, so it is
// tested without one.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/domain/measurement.h"

namespace neuroshard {

// Finished when, in this order of precedence,
// - kMaxIterations: max_iterations were fed;
// - kConverged: at least min_iterations were fed and the 95% confidence half-width of the median is
//   at most target_relative_error of the median (never with fewer than 6 iterations, see
//   MedianHalfWidth95);
// - kMaxTime: at least min_iterations were fed and they sum up to max_time_ms.
class StoppingRule {
 public:
  explicit StoppingRule(const MeasurementSettings& settings) : settings_(settings) {}

  // INVALID_ARGUMENT, and the value is not counted, unless it is finite and not negative.
  [[nodiscard]] Status AddMeasurementMs(double duration_ms);

  bool Finished() const { return finished_; }
  // Meaningful once Finished.
  StopReason reason() const { return reason_; }
  const std::vector<double>& samples_ms() const { return samples_ms_; }

 private:
  void Update();

  MeasurementSettings settings_;
  std::vector<double> samples_ms_;
  double total_ms_ = 0;
  bool finished_ = false;
  StopReason reason_ = StopReason::kMaxIterations;
};

// The record of a finished series.
TimedSeries Summarize(std::vector<double> samples_ms, StopReason reason, int warmup_iterations);

}  // namespace neuroshard
