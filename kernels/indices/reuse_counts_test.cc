#include "kernels/indices/reuse_counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "common/base/random.h"

namespace neuroshard {
namespace {

using ::testing::ElementsAre;

struct Totals {
  std::int64_t ids = 0;
  std::int64_t lookups = 0;
  ReuseHistogram histogram{};
};

Totals Measure(const std::vector<ReuseCount>& counts) {
  Totals totals;
  for (const ReuseCount& group : counts) {
    EXPECT_GE(group.ids, 1);
    EXPECT_GE(group.count, 1);
    totals.ids += group.ids;
    totals.lookups += group.ids * group.count;
    totals.histogram[ReuseBin(group.count)] += static_cast<double>(group.ids);
  }
  for (double& share : totals.histogram) share /= static_cast<double>(totals.ids);
  return totals;
}

ReuseHistogram RandomHistogram(Random& random) {
  ReuseHistogram histogram{};
  while (histogram == ReuseHistogram{}) {
    const double decay = random.UniformReal() * 2;
    for (int bin = 0; bin < kReuseBins; ++bin) {
      if (random.Below(3) != 0) histogram[bin] = random.UniformReal() * std::exp(-decay * bin);
    }
  }
  return histogram;
}

TEST(ChooseReuseCountsTest, TotalAndRowLimitAlwaysHold) {
  Random random(1);
  for (int trial = 0; trial < 20000; ++trial) {
    const ReuseHistogram histogram = RandomHistogram(random);
    const auto lookups = static_cast<std::int64_t>(std::exp2(random.UniformReal() * 24));
    const auto rows = static_cast<std::int64_t>(std::exp2(random.UniformReal() * 24));
    const Totals totals = Measure(ChooseReuseCounts(histogram, lookups, rows));
    ASSERT_EQ(totals.lookups, lookups) << trial;
    ASSERT_LE(totals.ids, rows) << trial;
  }
}

// Histograms that surely can be met, because some ids have them.
TEST(ChooseReuseCountsTest, FeasibleHistogramsAreMet) {
  Random random(2);
  for (int trial = 0; trial < 3000; ++trial) {
    const ReuseHistogram wish = RandomHistogram(random);
    const std::int64_t ids = random.Between(1, 3000);
    ReuseHistogram histogram{};
    std::int64_t lookups = 0;
    for (std::int64_t id = 0; id < ids; ++id) {
      int bin = static_cast<int>(random.Below(kReuseBins));
      if (random.UniformReal() > wish[bin]) bin = 0;
      histogram[bin] += 1.0 / static_cast<double>(ids);
      const std::int64_t largest = std::int64_t{1} << (bin == kReuseBins - 1 ? 18 : bin);
      lookups += bin == 0 ? 1 : random.Between((std::int64_t{1} << (bin - 1)) + 1, largest);
    }
    const std::int64_t rows = ids + static_cast<std::int64_t>(random.Below(2)) * 10'000'000;

    const Totals totals = Measure(ChooseReuseCounts(histogram, lookups, rows));

    ASSERT_EQ(totals.lookups, lookups);
    ASSERT_LE(totals.ids, rows);
    for (int bin = 0; bin < kReuseBins; ++bin) {
      ASSERT_NEAR(totals.histogram[bin], histogram[bin], 9.0 / static_cast<double>(totals.ids))
          << "trial " << trial << " bin " << bin << " ids " << ids << " got " << totals.ids;
    }
  }
}

TEST(ChooseReuseCountsTest, ManyIdsMeetTheHistogramClosely) {
  const ReuseHistogram histogram = DefaultReuseHistogram();
  const Totals totals = Measure(ChooseReuseCounts(histogram, 50'000'000, 1'000'000'000));
  for (int bin = 0; bin < kReuseBins; ++bin) {
    EXPECT_NEAR(totals.histogram[bin], histogram[bin], 2e-3) << bin;
  }
}

TEST(ChooseReuseCountsTest, OnceEachNeedsAsManyRowsAsLookups) {
  EXPECT_THAT(ChooseReuseCounts({1}, 1000, 1000), ElementsAre(ReuseCount{1, 1000}));
}

TEST(ChooseReuseCountsTest, TooFewRowsRaiseTheCounts) {
  EXPECT_THAT(ChooseReuseCounts({1}, 1050, 100),
              ElementsAre(ReuseCount{10, 50}, ReuseCount{11, 50}));
  ReuseHistogram halves{};
  halves[0] = halves[3] = 0.5;  // once, and up to 8 times
  const Totals totals = Measure(ChooseReuseCounts(halves, 9000, 100));
  EXPECT_EQ(totals.ids, 100);
  EXPECT_EQ(totals.lookups, 9000);
  EXPECT_DOUBLE_EQ(totals.histogram[ReuseBin(20)], 0.5);  // 8 : 1 stays 160 : 20
  EXPECT_DOUBLE_EQ(totals.histogram[ReuseBin(160)], 0.5);
}

TEST(ChooseReuseCountsTest, TheOpenBinTakesWhatFewRowsCannot) {
  ReuseHistogram histogram{};
  histogram[2] = 0.9;
  histogram[16] = 0.1;
  const Totals totals = Measure(ChooseReuseCounts(histogram, 10'000'000, 100));
  EXPECT_EQ(totals.lookups, 10'000'000);
  EXPECT_NEAR(totals.histogram[2], 0.9, 0.01);
  EXPECT_NEAR(totals.histogram[16], 0.1, 0.01);
}

TEST(ChooseReuseCountsTest, FewLookupsOfAHotRowStayOnOneRow) {
  ReuseHistogram hot{};
  hot[16] = 1;
  EXPECT_THAT(ChooseReuseCounts(hot, 1000, 100), ElementsAre(ReuseCount{1000, 1}));
  EXPECT_THAT(ChooseReuseCounts(hot, 65536, 100), ElementsAre(ReuseCount{65536, 1}));
}

TEST(ChooseReuseCountsTest, UnreachableBinsKeepTheirShareInTheHighestReachable) {
  ReuseHistogram histogram{};
  histogram[0] = 0.99;
  histogram[14] = 0.01;  // 8193 to 16384 lookups
  const Totals totals = Measure(ChooseReuseCounts(histogram, 8000, 1'000'000));
  EXPECT_EQ(totals.lookups, 8000);
  EXPECT_NEAR(totals.histogram[ReuseBin(8000)], 0.01, 0.005);
}

TEST(ChooseReuseCountsTest, LookupsBetweenTwoStepsGoToOneMoreId) {
  ReuseHistogram histogram{};
  histogram[0] = 0.9;
  histogram[4] = histogram[6] = 0.05;  // both get their first id together, 9 + 33 lookups at least
  EXPECT_THAT(ChooseReuseCounts(histogram, 45, 1000),
              ElementsAre(ReuseCount{1, 8}, ReuseCount{37, 1}));
}

TEST(ChooseReuseCountsTest, ScaleOfTheWeightsDoesNotMatter) {
  ReuseHistogram scaled = DefaultReuseHistogram();
  for (double& share : scaled) share *= 8;
  EXPECT_EQ(ChooseReuseCounts(scaled, 123456, 100000),
            ChooseReuseCounts(DefaultReuseHistogram(), 123456, 100000));
}

}  // namespace
}  // namespace neuroshard
