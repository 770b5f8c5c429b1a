// Robust statistics of small series of durations. Pure; every function takes the values in any
// order.
#pragma once

#include <span>

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

}  // namespace neuroshard
