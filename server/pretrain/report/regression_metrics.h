// Errors and rank correlation of predicted and measured costs, and what errors have in common that
// were measured at about the same time. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace neuroshard {

struct RegressionMetrics {
  std::int64_t samples = 0;
  double mse = 0;           // ms^2
  double mape_percent = 0;  // over values measured above 0; NaN when there is none
  double r2 = 0;            // 1 - residual / total variance; NaN when all measured values are equal
  double kendall_tau = 0;   // tau-b; NaN when either side is constant
};

// Measures spans of equal length, which `samples` is. All metrics are NaN when it is 0.
RegressionMetrics MeasureRegression(std::span<const double> predicted,
                                    std::span<const double> measured);

// Returns Kendall's tau-b: (concordant - discordant) / sqrt((pairs - ties in x) * (pairs - ties in
// y)), in O(n log n) after Knight (1966). NaN when x or y is constant or shorter than 2.
double KendallTau(std::span<const double> x, std::span<const double> y);

// Drift of the speed of the measuring machine, seen in the errors of a model: neighbours of a
// virtual machine slow it down for minutes, which no feature of a sample has.
struct MeasurementDrift {
  std::vector<double> slowness;  // by value: the median of measured / predicted in its block
  double least = 1;
  double greatest = 1;
};

// Returns what the errors of each block of about 100 values, consecutive in time, have in common.
// The values have costs above 0 that the model did not learn from. With fewer than 200 values, or
// all of one time (imported ones have none), it is 1 for all.
MeasurementDrift DriftOf(std::span<const double> predicted_ms, std::span<const double> measured_ms,
                         std::span<const std::int64_t> measured_at_unix_ms);

}  // namespace neuroshard
