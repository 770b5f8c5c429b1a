#include "kernels/api/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "common/base/random.h"

namespace neuroshard {
namespace {

using ::testing::ElementsAre;

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

MeasurementSettings Settings() {
  MeasurementSettings settings;
  settings.min_iterations = 5;
  settings.max_iterations = 50;
  settings.target_relative_error = 0.02;
  settings.max_time_ms = 2000;
  return settings;
}

// Feeds until finished and returns how many were needed.
template <typename Next>
int FeedUntilFinished(StoppingRule& rule, Next next) {
  int fed = 0;
  while (!rule.Finished() && fed < 10000) {
    EXPECT_TRUE(rule.AddMeasurementMs(next(fed)).ok());
    ++fed;
  }
  return fed;
}

TEST(StoppingRuleTest, ConstantConvergesAsSoonAsAnIntervalExists) {
  StoppingRule rule(Settings());
  EXPECT_EQ(FeedUntilFinished(rule, [](int) { return 3.0; }), 6);
  EXPECT_EQ(rule.reason(), StopReason::kConverged);
}

TEST(StoppingRuleTest, ZeroDurationsConverge) {
  StoppingRule rule(Settings());
  EXPECT_EQ(FeedUntilFinished(rule, [](int) { return 0.0; }), 6);
  EXPECT_EQ(rule.reason(), StopReason::kConverged);
}

TEST(StoppingRuleTest, MinimumIsHonoured) {
  MeasurementSettings settings = Settings();
  settings.min_iterations = 12;
  settings.max_time_ms = 1;
  StoppingRule rule(settings);
  EXPECT_EQ(FeedUntilFinished(rule, [](int) { return 3.0; }), 12);
}

TEST(StoppingRuleTest, NoiseStopsAtTheMaximum) {
  Random random(1);
  StoppingRule rule(Settings());
  EXPECT_EQ(FeedUntilFinished(rule, [&](int) { return 1 + random.UniformReal(); }), 50);
  EXPECT_EQ(rule.reason(), StopReason::kMaxIterations);
}

TEST(StoppingRuleTest, ModerateNoiseConvergesLaterThanNone) {
  Random random(2);
  StoppingRule rule(Settings());
  const int fed = FeedUntilFinished(rule, [&](int) { return 10 + 0.6 * random.UniformReal(); });
  EXPECT_EQ(rule.reason(), StopReason::kConverged);
  EXPECT_GT(fed, 6);
}

TEST(StoppingRuleTest, OneOutlierDoesNotPreventConvergence) {
  StoppingRule rule(Settings());
  EXPECT_EQ(FeedUntilFinished(rule, [](int i) { return i == 0 ? 500.0 : 3.0; }), 9);
  EXPECT_EQ(rule.reason(), StopReason::kConverged);
}

TEST(StoppingRuleTest, TimeIsTheSumOfTheDurations) {
  StoppingRule rule(Settings());
  const int fed = FeedUntilFinished(rule, [](int i) { return i % 2 == 0 ? 100.0 : 300.0; });
  EXPECT_EQ(rule.reason(), StopReason::kMaxTime);
  EXPECT_EQ(fed, 10);  // 5 x 100 + 5 x 300
}

TEST(StoppingRuleTest, MaximumBelowMinimumStillEnds) {
  MeasurementSettings settings = Settings();
  settings.max_iterations = 2;
  StoppingRule rule(settings);
  EXPECT_EQ(FeedUntilFinished(rule, [](int) { return 1.0; }), 2);
  EXPECT_EQ(rule.reason(), StopReason::kMaxIterations);
}

TEST(StoppingRuleTest, InvalidDurationsAreRefusedAndNotCounted) {
  StoppingRule rule(Settings());
  for (const double bad :
       {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(rule.AddMeasurementMs(bad).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(rule.AddMeasurementMs(1).ok());
  EXPECT_THAT(rule.samples_ms(), ElementsAre(1));
  EXPECT_FALSE(rule.Finished());
}

TEST(SummarizeTest, KeepsEverySampleInOrder) {
  const TimedSeries series = Summarize({3, 1, 2}, StopReason::kMaxTime, 4);
  EXPECT_THAT(series.samples_ms, ElementsAre(3, 1, 2));
  EXPECT_EQ(series.median_ms, 2);
  EXPECT_DOUBLE_EQ(series.relative_spread, (2.8 - 1.2) / 2);
  EXPECT_EQ(series.stop_reason, StopReason::kMaxTime);
  EXPECT_EQ(series.warmup_iterations, 4);
}

}  // namespace
}  // namespace neuroshard
