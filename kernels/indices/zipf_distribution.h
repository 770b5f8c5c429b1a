// Zipf-distributed ranks.
#pragma once

#include <cstdint>

#include "common/base/random.h"

namespace neuroshard {

// Rank k of [0, ranks) with probability ~ (k + 1)^-exponent, exactly, in constant memory and
// expected constant time: rejection-inversion (Hoermann and Derflinger, ACM TOMACS 6(3), 1996).
class ZipfDistribution {
 public:
  // ranks >= 1, exponent >= 0 and finite.
  ZipfDistribution(std::int64_t ranks, double exponent);

  std::int64_t operator()(Random& random) const;

 private:
  double Density(double x) const;          // x^-exponent
  double Integral(double x) const;         // of Density from 1 to x
  double InverseIntegral(double y) const;  // Integral(InverseIntegral(y)) == y

  std::int64_t ranks_;
  double exponent_;
  double integral_first_;
  double integral_last_;
  double always_accepted_;
};

}  // namespace neuroshard
