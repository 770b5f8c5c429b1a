#include "server/pretrain/train/input_dist_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace neuroshard {
namespace {

constexpr std::size_t kRates = 4;  // the fixed time, then ns a byte
constexpr double kMsOfNs = 1e-6;
using Row = std::array<double, kRates>;

// Each observation divided by its time: rates fit it where their product with the row is 1.
Row RowOf(const InputDistObservation& observation) {
  const InputDistBytes& bytes = observation.bytes;
  Row row = {1, bytes.whole * kMsOfNs, bytes.cut * kMsOfNs, bytes.lengths * kMsOfNs};
  for (double& value : row) value /= observation.ms;
  return row;
}

// The fit with the rates of `subset` alone, by the normal equations with pivots, of columns scaled
// to length 1; none where these are singular.
std::optional<Row> Solve(std::span<const Row> rows, const std::vector<std::size_t>& subset) {
  const std::size_t n = subset.size();
  std::vector<std::vector<double>> a(n, std::vector<double>(n + 1, 0));
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) a[i][j] += row[subset[i]] * row[subset[j]];
      a[i][n] += row[subset[i]];
    }
  }
  std::vector<double> lengths;
  for (std::size_t i = 0; i < n; ++i) lengths.push_back(std::sqrt(a[i][i]));
  if (*std::min_element(lengths.begin(), lengths.end()) <= 0) return std::nullopt;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) a[i][j] /= lengths[i] * lengths[j];
    a[i][n] /= lengths[i];
  }
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t pivot = i;
    for (std::size_t r = i; r < n; ++r) {
      if (std::abs(a[r][i]) > std::abs(a[pivot][i])) pivot = r;
    }
    std::swap(a[i], a[pivot]);
    if (std::abs(a[i][i]) < 1e-12) return std::nullopt;
    for (std::size_t r = 0; r < n; ++r) {
      if (r == i) continue;
      const double factor = a[r][i] / a[i][i];
      for (std::size_t c = i; c <= n; ++c) a[r][c] -= factor * a[i][c];
    }
  }
  Row rates{};
  for (std::size_t i = 0; i < n; ++i) rates[subset[i]] = a[i][n] / a[i][i] / lengths[i];
  return rates;
}

double ErrorOf(std::span<const Row> rows, const Row& rates) {
  double error = 0;
  for (const Row& row : rows) {
    double said = 0;
    for (std::size_t i = 0; i < kRates; ++i) said += row[i] * rates[i];
    error += (said - 1) * (said - 1);
  }
  return error;
}

}  // namespace

InputDistRates FitInputDist(int num_ranks, std::span<const InputDistObservation> observations) {
  std::vector<Row> rows;
  for (const InputDistObservation& observation : observations) rows.push_back(RowOf(observation));
  Row best{};
  double least = std::numeric_limits<double>::infinity();
  for (unsigned mask = 1; mask < 1U << kRates; ++mask) {
    std::vector<std::size_t> subset;
    for (std::size_t i = 0; i < kRates; ++i) {
      if ((mask & (1U << i)) != 0) subset.push_back(i);
    }
    const std::optional<Row> rates = Solve(rows, subset);
    if (!rates || *std::min_element(rates->begin(), rates->end()) < 0) continue;
    const double error = ErrorOf(rows, *rates);
    if (error >= least) continue;
    least = error;
    best = *rates;
  }
  return {num_ranks, best[0], best[1], best[2], best[3]};
}

}  // namespace neuroshard
