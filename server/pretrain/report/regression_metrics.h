// Errors and rank correlation of predicted and measured costs. Pure.
#pragma once

#include <cstdint>
#include <span>

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

}  // namespace neuroshard
