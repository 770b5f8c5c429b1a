#include "server/cost/interval_rule.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace neuroshard {
namespace {

// Logarithms of costs stay finite.
double LogOf(double cost_ms) { return std::log(std::max(cost_ms, 1e-12)); }

// Through (ln at[i], values[i]), which ascend and are at least one, constant outside.
double LinearInLog(const std::vector<double>& at, const std::vector<double>& values, double x) {
  const auto above = std::upper_bound(at.begin(), at.end(), x);
  if (above == at.begin()) return values.front();
  if (above == at.end()) return values.back();
  const std::size_t i = static_cast<std::size_t>(above - at.begin());
  const double share = std::log(x / at[i - 1]) / std::log(at[i] / at[i - 1]);
  return values[i - 1] + share * (values[i] - values[i - 1]);
}

}  // namespace

double IntervalRule::Noise(double cost_ms) const {
  return LinearInLog(manifest_.noise_cost_ms, manifest_.noise, cost_ms);
}

IntervalRule IntervalRule::AtRanks(int num_ranks) const {
  IntervalRule rule = *this;
  if (manifest_.ranks.empty()) return rule;
  const std::vector<double> at(manifest_.ranks.begin(), manifest_.ranks.end());
  rule.manifest_.factor = LinearInLog(at, manifest_.rank_factors, num_ranks);
  return rule;
}

double IntervalRule::Deviation(std::span<const double> member_costs_ms, double noise_at_ms) const {
  double mean = 0;
  for (const double cost : member_costs_ms) mean += LogOf(cost);
  mean /= static_cast<double>(member_costs_ms.size());
  double variance = 0;
  for (const double cost : member_costs_ms) variance += std::pow(LogOf(cost) - mean, 2);
  variance /= static_cast<double>(member_costs_ms.size());
  return std::sqrt(variance + std::pow(Noise(noise_at_ms), 2));
}

CostInterval IntervalRule::Around(double cost_ms, double deviation) const {
  const double spread = std::exp(manifest_.factor * deviation);
  // Times that are no use, but numbers.
  return {cost_ms / spread,
          std::min(cost_ms * spread, static_cast<double>(std::numeric_limits<float>::max()))};
}

double IntervalRule::TypicalError() const {
  return std::exp(manifest_.factor * manifest_.noise[manifest_.noise.size() / 2]) - 1;
}

}  // namespace neuroshard
