#include "kernels/indices/zipf_distribution.h"

#include <algorithm>
#include <cmath>

namespace neuroshard {
namespace {

// (e^x - 1) / x and log(1 + x) / x, also near 0, where exponents near 1 lead.
double ExpRatio(double x) { return std::abs(x) > 1e-8 ? std::expm1(x) / x : 1 + x / 2; }
double LogRatio(double x) { return std::abs(x) > 1e-8 ? std::log1p(x) / x : 1 - x / 2; }

}  // namespace

ZipfDistribution::ZipfDistribution(std::int64_t ranks, double exponent)
    : ranks_(ranks),
      exponent_(exponent),
      integral_first_(Integral(1.5) - 1),
      integral_last_(Integral(static_cast<double>(ranks) + 0.5)),
      always_accepted_(2 - InverseIntegral(Integral(2.5) - Density(2))) {}

double ZipfDistribution::Density(double x) const { return std::exp(-exponent_ * std::log(x)); }

double ZipfDistribution::Integral(double x) const {
  const double log_x = std::log(x);
  return ExpRatio((1 - exponent_) * log_x) * log_x;
}

double ZipfDistribution::InverseIntegral(double y) const {
  // Rounding may bring the argument below the domain of the logarithm.
  return std::exp(LogRatio(std::max(y * (1 - exponent_), -1.0)) * y);
}

std::int64_t ZipfDistribution::operator()(Random& random) const {
  while (true) {
    const double y = integral_last_ + random.UniformReal() * (integral_first_ - integral_last_);
    const double x = InverseIntegral(y);
    const double rank = std::clamp(std::floor(x + 0.5), 1.0, static_cast<double>(ranks_));
    if (rank - x <= always_accepted_ || y >= Integral(rank + 0.5) - Density(rank)) {
      return static_cast<std::int64_t>(rank) - 1;
    }
  }
}

}  // namespace neuroshard
