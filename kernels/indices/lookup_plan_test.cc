#include "kernels/indices/lookup_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "common/base/random.h"
#include "kernels/indices/lookup_generator.h"
#include "kernels/indices/testing/zipf_lookups.h"

namespace neuroshard {
namespace {

LookupRule RuleOf(std::int64_t batch_size, std::int64_t lookups, std::uint64_t seed) {
  LookupRule rule;
  rule.batch_size = batch_size;
  rule.lookups = lookups;
  rule.length_seed = seed;
  return rule;
}

TEST(LookupRuleTest, LengthsDifferByOneAndSumUpWhateverTheSizes) {
  Random random(1);
  for (int trial = 0; trial < 300; ++trial) {
    const std::int64_t batch_size = random.Between(1, 50);
    const std::int64_t lookups = random.Between(0, 200);
    const LookupRule rule = RuleOf(batch_size, lookups, random.Next());
    ASSERT_EQ(rule.Offset(0), 0);
    ASSERT_EQ(rule.Offset(batch_size), lookups);
    std::int64_t longest = 0;
    for (std::int64_t sample = 0; sample < batch_size; ++sample) {
      const std::int64_t length = rule.Offset(sample + 1) - rule.Offset(sample);
      ASSERT_GE(length, lookups / batch_size);
      ASSERT_LE(length, lookups / batch_size + 1);
      longest = std::max(longest, length);
    }
    ASSERT_EQ(longest, rule.LongestBag());
  }
}

// The longer samples of many seeds are everywhere equally often.
TEST(LookupRuleTest, EverySampleIsLongerEquallyOften) {
  constexpr int kBatch = 20, kSeeds = 20000;
  for (const std::int64_t longer : {1, 3, 7, 10, 13, 19}) {
    std::vector<double> share(kBatch);
    for (int seed = 0; seed < kSeeds; ++seed) {
      const LookupRule rule = RuleOf(kBatch, kBatch * 5 + longer, SplitMix(seed));
      for (int b = 0; b < kBatch; ++b) {
        share[b] += static_cast<double>(rule.Offset(b + 1) - rule.Offset(b) - 5) / kSeeds;
      }
    }
    // Stretches are rounded to whole samples.
    const double expected = static_cast<double>(longer) / kBatch;
    const double stretch = 1 / expected;
    for (const double s : share) {
      EXPECT_GE(s, 1 / std::ceil(stretch) - 0.02) << longer;
      EXPECT_LE(s, 1 / std::floor(stretch) + 0.02) << longer;
    }
  }
}

TEST(LookupRuleTest, HugeBatchesStayExact) {
  constexpr std::int64_t kBatch = std::int64_t{1} << 31, kLookups = (std::int64_t{1} << 40) - 1;
  const LookupRule rule = RuleOf(kBatch, kLookups, 3);
  EXPECT_EQ(rule.Offset(kBatch), kLookups);
  for (const std::int64_t sample : {kBatch / 3, kBatch / 2, kBatch - 1}) {
    const std::int64_t length = rule.Offset(sample + 1) - rule.Offset(sample);
    EXPECT_TRUE(length == kLookups / kBatch || length == kLookups / kBatch + 1);
  }
}

TEST(LookupRuleTest, WeightsAreUniformAroundOne) {
  const LookupRule rule = RuleOf(1, 1, 0);
  double sum = 0, squares = 0;
  constexpr int kWeights = 100'000;
  for (int i = 0; i < kWeights; ++i) {
    const double weight = rule.Weight(i);
    ASSERT_GE(weight, 0.5);
    ASSERT_LT(weight, 1.5);
    sum += weight / kWeights;
    squares += (weight - 1) * (weight - 1) / kWeights;
  }
  EXPECT_NEAR(sum, 1, 0.005);
  EXPECT_NEAR(squares, 1.0 / 12, 0.001);
}

// How often two ids of one sample are the same row: what shuffled ids have, however the counts and
// lengths are.
TEST(ExpandLookupsTest, RepeatedRowsMeetInASampleAsOftenAsInAShuffle) {
  for (const double pooling_factor : {2.0, 8.0, 32.0, 37.3}) {
    double met = 0, expected = 0, variance = 0;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const auto plan = PlanLookups({5000, 500, pooling_factor, false, seed}, {1, 1, 1, 1, 1, 1});
      ASSERT_TRUE(plan.ok());
      const LookupBatch batch = ExpandLookups(*plan);
      const auto pairs = [](double n) { return n * (n - 1) / 2; };
      std::map<std::int64_t, double> counts;
      for (const std::int64_t id : batch.ids) counts[id] += 1;
      double same_row = 0, same_sample = 0;
      for (const auto& [id, count] : counts) same_row += pairs(count);
      for (std::size_t b = 0; b + 1 < batch.offsets.size(); ++b) {
        std::map<std::int64_t, double> in_sample;
        for (std::int64_t i = batch.offsets[b]; i < batch.offsets[b + 1]; ++i) {
          in_sample[batch.ids[i]] += 1;
        }
        for (const auto& [id, count] : in_sample) met += pairs(count);
        same_sample += pairs(static_cast<double>(batch.offsets[b + 1] - batch.offsets[b]));
      }
      const double mean = same_row * same_sample / pairs(static_cast<double>(batch.ids.size()));
      expected += mean;
      variance += mean;
    }
    EXPECT_NEAR(met, expected, 5 * std::sqrt(variance)) << pooling_factor;
  }
}

TEST(ExpandLookupsTest, MakesWhatTheRuleSaysOfEveryPosition) {
  for (const auto& plan :
       {PlanLookups({100'000, 311, 10.1, true, 1}, DefaultReuseHistogram()),
        PlanZipfLookups({100'000, 311, 10.1, true, 1}, 1.1), PlanZipfLookups({1, 5, 3, true, 1}, 0),
        PlanLookups({7, 1, 1, true, 1}, {1}), PlanLookups({1 << 20, 1024, 2, true, 1}, {1})}) {
    ASSERT_TRUE(plan.ok());
    const LookupBatch batch = ExpandLookups(*plan);
    const LookupRule rule = plan->RuleWith(plan->runs.data());
    ASSERT_EQ(static_cast<std::int64_t>(batch.ids.size()), rule.lookups);
    for (std::int64_t i = 0; i < rule.lookups; ++i) {
      ASSERT_EQ(batch.ids[i], rule.Id(i));
      ASSERT_EQ(batch.weights[i], rule.Weight(i));
    }
  }
}

// Values are part of what a seed means, on every platform and device; a change of them is a
// decision.
TEST(ExpandLookupsTest, ASeedMeansTheseIds) {
  const auto plan = PlanLookups({1000, 4, 2.5, true, 7}, {1, 1, 1});
  ASSERT_TRUE(plan.ok());
  const LookupBatch batch = ExpandLookups(*plan);
  EXPECT_THAT(batch.offsets, ::testing::ElementsAre(0, 2, 5, 8, 10));
  EXPECT_THAT(batch.ids, ::testing::ElementsAre(295, 602, 295, 306, 295, 306, 411, 411, 411, 411));
}

}  // namespace
}  // namespace neuroshard
