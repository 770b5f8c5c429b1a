#include "kernels/stats/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/base/random.h"

namespace neuroshard {
namespace {

TEST(MedianTest, OddEvenAndEmpty) {
  EXPECT_EQ(Median(std::vector<double>{3, 1, 2}), 2);
  EXPECT_EQ(Median(std::vector<double>{4, 1, 3, 2}), 2.5);
  EXPECT_EQ(Median({}), 0);
}

TEST(PercentileTest, InterpolatesBetweenClosestRanks) {
  const std::vector<double> values = {40, 10, 30, 20};  // ranks 0..3
  EXPECT_EQ(Percentile(values, 0), 10);
  EXPECT_EQ(Percentile(values, 100), 40);
  EXPECT_DOUBLE_EQ(Percentile(values, 25), 17.5);
  EXPECT_DOUBLE_EQ(Percentile(values, 90), 37);
  EXPECT_EQ(Percentile(std::vector<double>{7}, 90), 7);
}

TEST(RelativeSpreadTest, IsScaleFree) {
  const std::vector<double> values = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  EXPECT_DOUBLE_EQ(RelativeSpread(values), (10.0 - 2.0) / 6.0);
  std::vector<double> scaled = values;
  for (double& value : scaled) value *= 1000;
  EXPECT_DOUBLE_EQ(RelativeSpread(scaled), RelativeSpread(values));
  EXPECT_EQ(RelativeSpread(std::vector<double>(5, 0.0)), 0);
}

// Order statistics of the 95% interval for a median as tabulated in textbooks on nonparametric
// statistics.
TEST(MedianHalfWidthTest, UsesTabulatedOrderStatistics) {
  const struct {
    int n, lower;
  } kTable[] = {{6, 1}, {8, 1}, {9, 2}, {10, 2}, {15, 4}, {20, 6}, {25, 8}, {50, 18}};
  for (const auto& [n, lower] : kTable) {
    std::vector<double> values;
    for (int i = 1; i <= n; ++i) values.push_back(i);  // the value is its own rank
    EXPECT_DOUBLE_EQ(MedianHalfWidth95(values), (n + 1 - 2 * lower) / 2.0) << n;
  }
}

TEST(MedianHalfWidthTest, TooFewValuesGiveNoInterval) {
  EXPECT_TRUE(std::isinf(MedianHalfWidth95({})));
  EXPECT_TRUE(std::isinf(MedianHalfWidth95(std::vector<double>(5, 1.0))));
  EXPECT_EQ(MedianHalfWidth95(std::vector<double>(6, 1.0)), 0);
}

TEST(MedianHalfWidthTest, ManyValuesDoNotUnderflow) {
  std::vector<double> values;
  for (int i = 1; i <= 5000; ++i) values.push_back(i);
  EXPECT_NEAR(MedianHalfWidth95(values), 0.98 * std::sqrt(5000.0), 2);  // normal approximation
}

TEST(MedianHalfWidthTest, CoversTheTrueMedianAtLeast95PercentOfTheTime) {
  Random random(3);
  constexpr int kTrials = 4000, kSize = 21;
  int covered = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> values;
    for (int i = 0; i < kSize; ++i) values.push_back(-std::log(1 - random.UniformReal()));
    // With 21 values the interval is from the 6th to the 16th, which are the quartiles.
    const double lower = Percentile(values, 25), upper = Percentile(values, 75);
    EXPECT_DOUBLE_EQ(MedianHalfWidth95(values), (upper - lower) / 2);
    covered += lower <= std::log(2.0) && std::log(2.0) <= upper;
  }
  EXPECT_GE(covered, kTrials * 0.95);
}

}  // namespace
}  // namespace neuroshard
