#include "server/cost/interval_rule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace neuroshard {
namespace {

const IntervalRule kRule({0.9, 2, {1, 100}, {0.3, 0.1}});

TEST(IntervalRuleTest, NoiseIsLinearInTheLogarithmAndConstantOutside) {
  EXPECT_EQ(kRule.Noise(0), 0.3);
  EXPECT_EQ(kRule.Noise(1), 0.3);
  EXPECT_NEAR(kRule.Noise(10), 0.2, 1e-12);
  EXPECT_NEAR(kRule.Noise(std::pow(10, 1.5)), 0.15, 1e-12);
  EXPECT_EQ(kRule.Noise(100), 0.1);
  EXPECT_EQ(kRule.Noise(1e9), 0.1);
  EXPECT_EQ(IntervalRule({0.9, 1, {5}, {0.4}}).Noise(7), 0.4);
}

TEST(IntervalRuleTest, DeviationAddsWhatMembersDisagreeInToTheNoise) {
  const std::vector<double> agree = {100, 100, 100};
  EXPECT_NEAR(kRule.Deviation(agree, agree[0]), 0.1, 1e-12);
  const std::vector<double> differ = {100, 100 * std::exp(0.2)};  // ln off by 0.1 from their mean
  EXPECT_NEAR(kRule.Deviation(differ, differ[0]), std::sqrt(0.01 + 0.01), 1e-12);
  const std::vector<double> nothing = {0, 0};
  EXPECT_NEAR(kRule.Deviation(nothing, nothing[0]), 0.3, 1e-12);
}

TEST(IntervalRuleTest, TheFactorIsThatOfTheRankCount) {
  const IntervalRule rule({0.9, 2, {1}, {0.1}, {2, 8}, {1, 3}});
  const auto factor = [&](int ranks) { return std::log(rule.AtRanks(ranks).Around(1, 1).high_ms); };
  EXPECT_NEAR(factor(2), 1, 1e-12);
  EXPECT_NEAR(factor(4), 2, 1e-12);
  EXPECT_NEAR(factor(8), 3, 1e-12);
  EXPECT_NEAR(factor(512), 3, 1e-12);
  EXPECT_NEAR(std::log(rule.Around(1, 1).high_ms), 2, 1e-12);
  EXPECT_EQ(kRule.AtRanks(8).Around(10, 0.2), kRule.Around(10, 0.2));
}

TEST(IntervalRuleTest, IntervalsAreFactorsAroundTheCost) {
  const CostInterval interval = kRule.Around(10, 0.2);
  EXPECT_NEAR(interval.low_ms, 10 / std::exp(0.4), 1e-12);
  EXPECT_NEAR(interval.high_ms, 10 * std::exp(0.4), 1e-12);
  EXPECT_EQ(kRule.Around(0, 0.2), CostInterval{});
  EXPECT_TRUE(std::isfinite(kRule.Around(1e30, 1000).high_ms));
  EXPECT_NEAR(kRule.TypicalError(), std::exp(0.2) - 1, 1e-12);
}

}  // namespace
}  // namespace neuroshard
