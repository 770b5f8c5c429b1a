#include "server/pretrain/train/interval_calibration.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace neuroshard {
namespace {

constexpr std::size_t kMaxBuckets = 8;
constexpr std::size_t kMinGroups = 20;
constexpr std::size_t kGroupsABucket = 60;
// Standard deviation over median absolute deviation of a normal distribution.
constexpr double kDeviationOfMedian = 1.4826;
// A model that is exact where it was calibrated still gets an interval.
constexpr double kMinNoise = 1e-4;
constexpr double kMinFactor = 1e-3;
constexpr double kRounding = 1e-9;  // of sums of weights

struct Miss {
  const CalibrationValue* value = nullptr;
  double log_ratio = 0;  // absolute
  double weight = 0;     // those of a group add up to 1
};

struct Weighed {
  double value = 0;
  double weight = 0;
};

// The least value such that at least `weight` is at or below it; the largest where there is none.
double QuantileOf(std::vector<Weighed> values, double weight) {
  std::ranges::sort(values, {}, &Weighed::value);
  double sum = 0;
  for (const Weighed& each : values) {
    sum += each.weight;
    if (sum >= weight - kRounding) return each.value;
  }
  return values.back().value;
}

double MedianOf(std::vector<Weighed> values) {
  double sum = 0;
  for (const Weighed& each : values) sum += each.weight;
  return QuantileOf(std::move(values), sum / 2);
}

// By what was said, ascending.
std::vector<Miss> MissesOf(const std::vector<CalibrationValue>& values) {
  std::vector<Miss> misses;
  std::map<std::int64_t, int> group_sizes;
  for (const CalibrationValue& value : values) {
    if (!(value.unseen_ms > 0) || !(value.measured_ms > 0)) continue;
    misses.push_back({&value, std::abs(std::log(value.measured_ms / value.unseen_ms)), 0});
    ++group_sizes[value.group];
  }
  for (Miss& miss : misses) miss.weight = 1.0 / group_sizes[miss.value->group];
  std::ranges::stable_sort(
      misses, [](const Miss& a, const Miss& b) { return a.value->unseen_ms < b.value->unseen_ms; });
  return misses;
}

std::size_t GroupsOf(const std::vector<Miss>& misses) {
  std::set<std::int64_t> groups;
  for (const Miss& miss : misses) groups.insert(miss.value->group);
  return groups.size();
}

void AddNoise(const std::vector<Miss>& misses, std::size_t groups, IntervalManifest& interval) {
  const std::size_t buckets = std::clamp<std::size_t>(groups / kGroupsABucket, 1, kMaxBuckets);
  const double per_bucket = static_cast<double>(groups) / static_cast<double>(buckets);
  std::size_t begin = 0;
  double before = 0;
  for (std::size_t b = 0; b < buckets; ++b) {
    std::vector<Weighed> ratios;
    std::vector<Weighed> costs;
    const double until = per_bucket * static_cast<double>(b + 1);
    for (; begin < misses.size() && before < until - kRounding; ++begin) {
      const Miss& miss = misses[begin];
      ratios.push_back({miss.log_ratio, miss.weight});
      costs.push_back({miss.value->unseen_ms, miss.weight});
      before += miss.weight;
    }
    if (costs.empty()) continue;
    const double cost = MedianOf(std::move(costs));
    if (!interval.noise_cost_ms.empty() && cost <= interval.noise_cost_ms.back()) continue;
    interval.noise_cost_ms.push_back(cost);
    interval.noise.push_back(std::max(kMinNoise, kDeviationOfMedian * MedianOf(std::move(ratios))));
  }
}

double FactorOf(const std::vector<Miss>& misses, const IntervalRule& rule, double coverage) {
  std::vector<Weighed> scores;
  for (const Miss& miss : misses) {
    const double deviation = rule.Deviation(miss.value->members_ms, miss.value->unseen_ms);
    scores.push_back({miss.log_ratio / deviation, miss.weight});
  }
  const auto groups = static_cast<double>(GroupsOf(misses));
  return std::max(kMinFactor, QuantileOf(std::move(scores), (groups + 1) * coverage));
}

}  // namespace

std::vector<double> EnsemblePredictions::Model() const {
  std::vector<double> model;
  model.reserve(members_ms.size());
  for (const auto& members : members_ms) {
    const std::size_t pricing =
        std::min(members.size(), static_cast<std::size_t>(kMaxPricingMembers));
    model.push_back(std::accumulate(members.begin(), members.begin() + pricing, 0.0) /
                    static_cast<double>(pricing));
  }
  return model;
}

std::optional<IntervalManifest> CalibrateInterval(const std::vector<CalibrationValue>& values,
                                                  double coverage) {
  const std::vector<Miss> misses = MissesOf(values);
  const std::size_t groups = GroupsOf(misses);
  if (groups < kMinGroups) return std::nullopt;
  IntervalManifest interval;
  interval.coverage = coverage;
  AddNoise(misses, groups, interval);
  const IntervalRule rule(interval);
  interval.factor = FactorOf(misses, rule, coverage);
  std::map<int, std::vector<Miss>> by_ranks;
  for (const Miss& miss : misses) by_ranks[miss.value->num_ranks].push_back(miss);
  std::erase_if(by_ranks, [](const auto& each) { return GroupsOf(each.second) < kMinGroups; });
  if (by_ranks.size() < 2) return interval;
  for (const auto& [num_ranks, of_count] : by_ranks) {
    interval.ranks.push_back(num_ranks);
    interval.rank_factors.push_back(FactorOf(of_count, rule, coverage));
  }
  return interval;
}

std::optional<IntervalManifest> CalibrateInterval(const EnsemblePredictions& predictions,
                                                  double coverage) {
  std::vector<CalibrationValue> values;
  const std::vector<double> model_ms = predictions.Model();
  for (std::size_t i = 0; i < predictions.measured_ms.size(); ++i) {
    values.push_back({predictions.measured_ms[i], model_ms[i], predictions.members_ms[i],
                      static_cast<std::int64_t>(i), 0});
  }
  return CalibrateInterval(values, coverage);
}

double IntervalCoverage(const IntervalManifest& interval, const EnsemblePredictions& predictions,
                        const std::vector<int>& num_ranks) {
  if (predictions.measured_ms.empty()) return std::numeric_limits<double>::quiet_NaN();
  const IntervalRule rule(interval);
  const std::vector<double> model_ms = predictions.Model();
  std::size_t inside = 0;
  for (std::size_t i = 0; i < predictions.measured_ms.size(); ++i) {
    const IntervalRule here = num_ranks.empty() ? rule : rule.AtRanks(num_ranks[i]);
    const CostInterval around =
        here.Around(model_ms[i], here.Deviation(predictions.members_ms[i], model_ms[i]));
    inside +=
        predictions.measured_ms[i] >= around.low_ms && predictions.measured_ms[i] <= around.high_ms;
  }
  return static_cast<double>(inside) / static_cast<double>(predictions.measured_ms.size());
}

}  // namespace neuroshard
