#include "kernels/stats/stopping_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "common/base/random.h"

namespace neuroshard {
namespace {

using ::testing::ElementsAre;

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
