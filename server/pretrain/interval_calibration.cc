#include "server/pretrain/interval_calibration.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "server/cost/universal/interval_rule.h"

namespace neuroshard {
namespace {

constexpr std::size_t kMaxBuckets = 8;
constexpr std::size_t kMinBucket = 20;
// Of a normal distribution: standard deviation over median absolute deviation.
constexpr double kDeviationOfMedian = 1.4826;
// A model that is exact where it was calibrated still gets an interval.
constexpr double kLeastNoise = 1e-4;
constexpr double kLeastFactor = 1e-3;

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Miss {
  double predicted_ms = 0;
  double log_ratio = 0;  // absolute
  const std::vector<double>* members_ms = nullptr;
};

std::vector<Miss> MissesOf(const EnsemblePredictions& predictions) {
  std::vector<Miss> misses;
  for (std::size_t i = 0; i < predictions.measured_ms.size(); ++i) {
    const double predicted = predictions.members_ms[i].front();
    const double measured = predictions.measured_ms[i];
    if (!(predicted > 0) || !(measured > 0)) continue;
    misses.push_back(
        {predicted, std::abs(std::log(measured / predicted)), &predictions.members_ms[i]});
  }
  std::sort(misses.begin(), misses.end(),
            [](const Miss& a, const Miss& b) { return a.predicted_ms < b.predicted_ms; });
  return misses;
}

}  // namespace

std::vector<double> EnsemblePredictions::Model() const {
  std::vector<double> model;
  model.reserve(members_ms.size());
  for (const auto& members : members_ms) model.push_back(members.front());
  return model;
}

std::optional<IntervalManifest> CalibrateInterval(const EnsemblePredictions& predictions,
                                                  double coverage) {
  const std::vector<Miss> misses = MissesOf(predictions);
  if (misses.size() < kMinBucket) return std::nullopt;
  IntervalManifest interval;
  interval.coverage = coverage;
  const std::size_t buckets = std::clamp<std::size_t>(misses.size() / kMinBucket, 1, kMaxBuckets);
  for (std::size_t b = 0; b < buckets; ++b) {
    const std::size_t begin = misses.size() * b / buckets;
    const std::size_t end = misses.size() * (b + 1) / buckets;
    std::vector<double> ratios;
    std::vector<double> costs;
    for (std::size_t i = begin; i < end; ++i) {
      ratios.push_back(misses[i].log_ratio);
      costs.push_back(misses[i].predicted_ms);
    }
    const double cost = MedianOf(std::move(costs));
    if (!interval.noise_cost_ms.empty() && cost <= interval.noise_cost_ms.back()) continue;
    interval.noise_cost_ms.push_back(cost);
    interval.noise.push_back(
        std::max(kLeastNoise, kDeviationOfMedian * MedianOf(std::move(ratios))));
  }
  const IntervalRule rule(interval);
  std::vector<double> scores;
  for (const Miss& miss : misses) {
    scores.push_back(miss.log_ratio / rule.Deviation(*miss.members_ms));
  }
  std::sort(scores.begin(), scores.end());
  const auto n = static_cast<double>(scores.size());
  const auto rank = static_cast<std::size_t>(std::ceil((n + 1) * coverage));
  interval.factor = std::max(kLeastFactor, scores[std::min(rank, scores.size()) - 1]);
  return interval;
}

double IntervalCoverage(const IntervalManifest& interval, const EnsemblePredictions& predictions) {
  const IntervalRule rule(interval);
  std::size_t inside = 0;
  for (std::size_t i = 0; i < predictions.measured_ms.size(); ++i) {
    const auto& members = predictions.members_ms[i];
    const CostInterval around = rule.Around(members.front(), rule.Deviation(members));
    inside +=
        predictions.measured_ms[i] >= around.low_ms && predictions.measured_ms[i] <= around.high_ms;
  }
  if (predictions.measured_ms.empty()) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(inside) / static_cast<double>(predictions.measured_ms.size());
}

}  // namespace neuroshard
