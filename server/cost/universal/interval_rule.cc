#include "server/cost/universal/interval_rule.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace neuroshard {
namespace {

// Logarithms of costs stay finite.
double LogOf(double cost_ms) { return std::log(std::max(cost_ms, 1e-12)); }

}  // namespace

double IntervalRule::Noise(double cost_ms) const {
  const auto& at = manifest_.noise_cost_ms;
  const auto& noise = manifest_.noise;
  const auto above = std::upper_bound(at.begin(), at.end(), cost_ms);
  if (above == at.begin()) return noise.front();
  if (above == at.end()) return noise.back();
  const std::size_t i = static_cast<std::size_t>(above - at.begin());
  const double share = std::log(cost_ms / at[i - 1]) / std::log(at[i] / at[i - 1]);
  return noise[i - 1] + share * (noise[i] - noise[i - 1]);
}

double IntervalRule::Deviation(std::span<const double> member_costs_ms) const {
  double mean = 0;
  for (const double cost : member_costs_ms) mean += LogOf(cost);
  mean /= static_cast<double>(member_costs_ms.size());
  double variance = 0;
  for (const double cost : member_costs_ms) variance += std::pow(LogOf(cost) - mean, 2);
  variance /= static_cast<double>(member_costs_ms.size());
  return std::sqrt(variance + std::pow(Noise(member_costs_ms.front()), 2));
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
