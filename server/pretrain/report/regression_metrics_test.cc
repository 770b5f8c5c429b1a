#include "server/pretrain/report/regression_metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/base/random.h"

namespace neuroshard {
namespace {

double TauByPairs(const std::vector<double>& x, const std::vector<double>& y) {
  double score = 0;
  double untied_x = 0;
  double untied_y = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const int dx = (x[i] > x[j]) - (x[i] < x[j]);
      const int dy = (y[i] > y[j]) - (y[i] < y[j]);
      score += dx * dy;
      untied_x += dx != 0;
      untied_y += dy != 0;
    }
  }
  return score / std::sqrt(untied_x * untied_y);
}

TEST(KendallTauTest, AgreesWithTheDefinitionWithAndWithoutTies) {
  Random random(7);
  for (const std::uint64_t values : {2u, 3u, 10u, 1000000u}) {
    for (std::size_t n = 2; n < 60; n += 3) {
      std::vector<double> x(n);
      std::vector<double> y(n);
      for (auto& value : x) value = static_cast<double>(random.Below(values));
      for (auto& value : y) value = static_cast<double>(random.Below(values));
      const double expected = TauByPairs(x, y);
      const double tau = KendallTau(x, y);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(tau));
      } else {
        EXPECT_NEAR(tau, expected, 1e-12) << n << " entries of " << values << " values";
      }
    }
  }
}

TEST(KendallTauTest, IsOneForAnyIncreasingFunctionAndMinusOneForAnyDecreasing) {
  std::vector<double> x;
  std::vector<double> up;
  std::vector<double> down;
  for (int i = 0; i < 1000; ++i) {
    x.push_back((i * 37) % 1000);
    up.push_back(std::exp(x.back() / 100));
    down.push_back(-up.back());
  }
  EXPECT_DOUBLE_EQ(KendallTau(x, up), 1.0);
  EXPECT_DOUBLE_EQ(KendallTau(x, down), -1.0);
}

TEST(KendallTauTest, IsUndefinedForConstantOrTooFewValues) {
  EXPECT_TRUE(std::isnan(KendallTau(std::vector<double>{1, 1, 1}, std::vector<double>{1, 2, 3})));
  EXPECT_TRUE(std::isnan(KendallTau(std::vector<double>{1}, std::vector<double>{1})));
}

TEST(RegressionMetricsTest, MatchesValuesWorkedOutByHand) {
  const RegressionMetrics metrics =
      MeasureRegression(std::vector<double>{1, 3, 5}, std::vector<double>{2, 4, 3});
  EXPECT_EQ(metrics.samples, 3);
  EXPECT_DOUBLE_EQ(metrics.mse, 2.0);
  EXPECT_DOUBLE_EQ(metrics.mape_percent, 100 * (0.5 + 0.25 + 2.0 / 3) / 3);
  EXPECT_DOUBLE_EQ(metrics.r2, 1 - 6.0 / 2.0);
  EXPECT_DOUBLE_EQ(metrics.kendall_tau, 1.0 / 3);
}

TEST(RegressionMetricsTest, PredictingTheMeanHasNoR2AndPerfectionHasOne) {
  const std::vector<double> measured = {1, 2, 3, 6};
  EXPECT_DOUBLE_EQ(MeasureRegression(std::vector<double>(4, 3.0), measured).r2, 0.0);
  const RegressionMetrics perfect = MeasureRegression(measured, measured);
  EXPECT_DOUBLE_EQ(perfect.r2, 1.0);
  EXPECT_DOUBLE_EQ(perfect.mape_percent, 0.0);
  EXPECT_DOUBLE_EQ(perfect.kendall_tau, 1.0);
}

TEST(RegressionMetricsTest, SaysWhatIsUndefined) {
  const RegressionMetrics constant =
      MeasureRegression(std::vector<double>{1, 2}, std::vector<double>{0.1, 0.1});
  EXPECT_TRUE(std::isnan(constant.r2));
  const RegressionMetrics zeros =
      MeasureRegression(std::vector<double>{1, 2}, std::vector<double>{0, 0});
  EXPECT_TRUE(std::isnan(zeros.mape_percent));
  EXPECT_TRUE(std::isnan(MeasureRegression({}, {}).mse));
}

}  // namespace
}  // namespace neuroshard
