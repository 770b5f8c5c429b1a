#include "kernels/stats/stopping_rule.h"

#include <cmath>
#include <utility>

#include "kernels/stats/statistics.h"

namespace neuroshard {

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
