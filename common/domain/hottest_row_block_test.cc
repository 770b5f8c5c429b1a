#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "common/base/random.h"
#include "common/domain/expected_lookups.h"
#include "common/domain/testing/reuse_histograms.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kTableRows = 20'000;
constexpr std::int64_t kBatchIds = 2'000'000;

double MeanCount(const ReuseHistogram& shares) {
  return std::inner_product(shares.begin(), shares.end(), MeanReuseCounts().begin(), 0.0);
}

// The largest share of a block's rows, on average over rows hashed at random.
double SimulatedShare(double exponent, int blocks, Random& random) {
  std::vector<double> weights;
  for (std::int64_t k = 1; k <= kTableRows; ++k) {
    weights.push_back(std::pow(static_cast<double>(k), -exponent));
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  constexpr int kTrials = 20;
  double mean = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> loads(static_cast<std::size_t>(blocks));
    for (const double weight : weights) {
      loads[static_cast<std::size_t>(random.Below(loads.size()))] += weight / sum;
    }
    mean += *std::max_element(loads.begin(), loads.end()) / kTrials;
  }
  return mean;
}

TEST(HottestRowBlockTest, BoundsWhatHashedRowsGiveAndIsNear) {
  Random random(1);
  for (const double exponent : {0.0, 0.6, 0.9, 1.05, 1.3}) {
    const ReuseHistogram histogram = ZipfReuseHistogram(kTableRows, kBatchIds, exponent);
    for (const int blocks : {2, 8, 64, 512}) {
      const double simulated = SimulatedShare(exponent, blocks, random);
      const double share =
          ExpectedHottestRowBlock(histogram, kTableRows, kBatchIds, blocks).ids_share;
      EXPECT_GE(share, 0.92 * simulated) << exponent << " " << blocks;
      EXPECT_LE(share, 1.15 * simulated) << exponent << " " << blocks;
    }
  }
}

TEST(HottestRowBlockTest, MoreBlocksGetSmallerSharesAndHotterOnes) {
  for (const ReuseHistogram& histogram :
       {DefaultReuseHistogram(), ReuseHistogram{}, ReuseHistogram{1},
        ZipfReuseHistogram(kTableRows, kBatchIds, 1.2)}) {
    double share_before = 1, surplus_before = 1;
    for (int blocks = 1; blocks <= 4096; blocks *= 2) {
      const double share =
          ExpectedHottestRowBlock(histogram, kTableRows, kBatchIds, blocks).ids_share;
      EXPECT_LE(share, share_before * (1 + 1e-6)) << blocks;
      EXPECT_GE(share * blocks, surplus_before * (1 - 1e-6)) << blocks;
      share_before = share;
      surplus_before = share * blocks;
    }
  }
}

// The ids beyond an even share are of the hottest rows, whose number is the same.
TEST(HottestRowBlockTest, ItsIdsOccurAsMuchMoreOften) {
  const ReuseHistogram histogram = ZipfReuseHistogram(kTableRows, kBatchIds, 1.05);
  const HottestRowBlock block = ExpectedHottestRowBlock(histogram, kTableRows, kBatchIds, 8);
  EXPECT_GT(block.ids_share, 0.2);
  EXPECT_NEAR(MeanCount(block.reuse), MeanCount(histogram) * block.ids_share * 8,
              1e-6 * MeanCount(block.reuse));
  EXPECT_NEAR(std::accumulate(block.reuse.begin(), block.reuse.end(), 0.0), 1, 1e-9);
}

TEST(HottestRowBlockTest, OneBlockIsTheTableAndOneRowIsInOneBlock) {
  EXPECT_EQ(ExpectedHottestRowBlock(DefaultReuseHistogram(), kTableRows, kBatchIds, 1).ids_share,
            1);
  EXPECT_EQ(ExpectedHottestRowBlock(DefaultReuseHistogram(), kTableRows, kBatchIds, 1).reuse,
            DefaultReuseHistogram());
  EXPECT_NEAR(ExpectedHottestRowBlock(ReuseHistogram{1}, 1, 10, 8).ids_share, 1, 1e-6);
}

}  // namespace
}  // namespace neuroshard
