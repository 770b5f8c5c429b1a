#include "server/pretrain/report/regression_metrics.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

#include "common/base/positions.h"

namespace neuroshard {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double Pairs(double n) { return n * (n - 1) / 2; }

// Pairs of values of which the first is the greater: for each value, those before it that are not
// greater are counted in a binary indexed tree (Fenwick, 1994) over the order of the values.
double Inversions(const std::vector<double>& values) {
  std::vector<double> distinct = values;
  SortUnique(distinct);
  std::vector<std::int64_t> counts(distinct.size() + 1, 0);
  std::int64_t inversions = 0;
  for (std::int64_t before = 0; before < std::ssize(values); ++before) {
    const auto place = std::ranges::lower_bound(distinct, values[before]) - distinct.begin() + 1;
    inversions += before;
    for (std::int64_t at = place; at > 0; at -= at & -at) inversions -= counts[at];
    for (std::int64_t at = place; at < std::ssize(counts); at += at & -at) ++counts[at];
  }
  return static_cast<double>(inversions);
}

// Pairs within runs of entries that `equal` (a predicate on neighbouring positions) joins.
template <typename Equal>
double TiedPairs(std::size_t n, Equal equal) {
  double tied = 0;
  std::size_t run = 1;
  for (std::size_t i = 1; i <= n; ++i) {
    if (i < n && equal(i - 1, i)) {
      ++run;
    } else {
      tied += Pairs(static_cast<double>(run));
      run = 1;
    }
  }
  return tied;
}

}  // namespace

double KendallTau(std::span<const double> x, std::span<const double> y) {
  assert(x.size() == y.size());
  const std::size_t n = x.size();
  if (n < 2) return kNan;
  std::vector<std::size_t> order = Positions(n);
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return x[a] < x[b] || (x[a] == x[b] && y[a] < y[b]);
  });
  const double x_ties = TiedPairs(n, [&](auto a, auto b) { return x[order[a]] == x[order[b]]; });
  const double both_ties = TiedPairs(
      n, [&](auto a, auto b) { return x[order[a]] == x[order[b]] && y[order[a]] == y[order[b]]; });
  std::vector<double> sorted(n);
  for (std::size_t i = 0; i < n; ++i) sorted[i] = y[order[i]];
  const double discordant = Inversions(sorted);
  std::ranges::sort(sorted);
  const double y_ties = TiedPairs(n, [&](auto a, auto b) { return sorted[a] == sorted[b]; });
  const double pairs = Pairs(static_cast<double>(n));
  if (x_ties == pairs || y_ties == pairs) return kNan;
  const double concordant_minus_discordant = pairs - x_ties - y_ties + both_ties - 2 * discordant;
  return concordant_minus_discordant / std::sqrt(pairs - x_ties) / std::sqrt(pairs - y_ties);
}

RegressionMetrics MeasureRegression(std::span<const double> predicted,
                                    std::span<const double> measured) {
  assert(predicted.size() == measured.size());
  const std::size_t n = measured.size();
  if (n == 0) return {0, kNan, kNan, kNan, kNan};
  const double mean =
      std::accumulate(measured.begin(), measured.end(), 0.0) / static_cast<double>(n);
  double residual = 0;
  double total = 0;
  double relative = 0;
  std::size_t positive = 0;
  bool constant = true;
  for (std::size_t i = 0; i < n; ++i) {
    const double error = predicted[i] - measured[i];
    residual += error * error;
    total += (measured[i] - mean) * (measured[i] - mean);
    constant = constant && measured[i] == measured[0];
    if (measured[i] > 0) {
      relative += std::abs(error) / measured[i];
      ++positive;
    }
  }
  RegressionMetrics metrics;
  metrics.samples = static_cast<std::int64_t>(n);
  metrics.mse = residual / static_cast<double>(n);
  metrics.mape_percent = positive == 0 ? kNan : 100 * relative / static_cast<double>(positive);
  metrics.r2 = constant ? kNan : 1 - residual / total;
  metrics.kendall_tau = KendallTau(predicted, measured);
  return metrics;
}

MeasurementDrift DriftOf(std::span<const double> predicted_ms, std::span<const double> measured_ms,
                         std::span<const std::int64_t> measured_at_unix_ms) {
  constexpr std::size_t kBlock = 100;
  assert(predicted_ms.size() == measured_ms.size());
  assert(predicted_ms.size() == measured_at_unix_ms.size());
  MeasurementDrift drift;
  drift.slowness.assign(measured_ms.size(), 1);
  std::vector<std::size_t> order = Positions(measured_ms.size());
  std::erase_if(order, [&](std::size_t i) { return !(predicted_ms[i] > 0 && measured_ms[i] > 0); });
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return measured_at_unix_ms[a] < measured_at_unix_ms[b];
  });
  const std::size_t blocks = order.size() / kBlock;
  if (blocks < 2) return drift;
  if (measured_at_unix_ms[order.front()] == measured_at_unix_ms[order.back()]) return drift;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::size_t begin = order.size() * b / blocks;
    const std::size_t end = order.size() * (b + 1) / blocks;
    std::vector<double> ratios;
    for (std::size_t i = begin; i < end; ++i) {
      ratios.push_back(measured_ms[order[i]] / predicted_ms[order[i]]);
    }
    const auto middle = ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2);
    std::nth_element(ratios.begin(), middle, ratios.end());
    for (std::size_t i = begin; i < end; ++i) drift.slowness[order[i]] = *middle;
    drift.least = b == 0 ? *middle : std::min(drift.least, *middle);
    drift.greatest = b == 0 ? *middle : std::max(drift.greatest, *middle);
  }
  return drift;
}

}  // namespace neuroshard
