#include "kernels/indices/zipf_distribution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace neuroshard {
namespace {

class ZipfDistributionTest : public ::testing::TestWithParam<double> {};

TEST_P(ZipfDistributionTest, FrequenciesAreThoseOfTheDefinition) {
  constexpr int kRanks = 12, kDraws = 200000;
  const double exponent = GetParam();
  const ZipfDistribution zipf(kRanks, exponent);
  Random random(9);
  std::vector<double> drawn(kRanks);
  for (int i = 0; i < kDraws; ++i) drawn.at(zipf(random)) += 1.0 / kDraws;
  double normaliser = 0;
  for (int k = 1; k <= kRanks; ++k) normaliser += std::pow(k, -exponent);
  for (int k = 1; k <= kRanks; ++k) {
    const double expected = std::pow(k, -exponent) / normaliser;
    EXPECT_NEAR(drawn[k - 1], expected, 5 * std::sqrt(expected / kDraws)) << k;
  }
}

INSTANTIATE_TEST_SUITE_P(Exponents, ZipfDistributionTest,
                         ::testing::Values(0.0, 0.5, 0.999999999, 1.0, 1.2, 3.0));

TEST(ZipfDistributionTest, OneRankIsAlwaysTheFirst) {
  const ZipfDistribution zipf(1, 1.1);
  Random random(1);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(zipf(random), 0);
}

TEST(ZipfDistributionTest, HugeRangesStayInside) {
  constexpr std::int64_t kRanks = std::int64_t{1} << 48;
  Random random(1);
  for (const double exponent : {0.0, 0.8, 1.0, 2.0}) {
    const ZipfDistribution zipf(kRanks, exponent);
    for (int i = 0; i < 10000; ++i) {
      const std::int64_t rank = zipf(random);
      ASSERT_GE(rank, 0);
      ASSERT_LT(rank, kRanks);
    }
  }
}

}  // namespace
}  // namespace neuroshard
