#include "common/domain/reuse_histogram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "common/base/random.h"
#include "common/domain/testing/reuse_histograms.h"

namespace neuroshard {
namespace {

double Sum(const ReuseHistogram& histogram) {
  return std::accumulate(histogram.begin(), histogram.end(), 0.0);
}

TEST(ReuseBinTest, BordersBelongToTheLowerBin) {
  EXPECT_EQ(ReuseBin(1), 0);
  EXPECT_EQ(ReuseBin(2), 1);
  EXPECT_EQ(ReuseBin(3), 2);
  EXPECT_EQ(ReuseBin(4), 2);
  EXPECT_EQ(ReuseBin(5), 3);
  EXPECT_EQ(ReuseBin(1 << 15), 15);
  EXPECT_EQ(ReuseBin((1 << 15) + 1), 16);
  EXPECT_EQ(ReuseBin(std::int64_t{1} << 40), 16);
}

TEST(MeasureReuseHistogramTest, CountsDistinctIds) {
  const std::vector<std::int64_t> ids = {5, 1, 5, 2, 9, 5, 2};  // 1, 9 once; 2 twice; 5 three times
  const ReuseHistogram histogram = MeasureReuseHistogram(ids);
  EXPECT_DOUBLE_EQ(histogram[0], 0.5);
  EXPECT_DOUBLE_EQ(histogram[1], 0.25);
  EXPECT_DOUBLE_EQ(histogram[2], 0.25);
  EXPECT_DOUBLE_EQ(Sum(histogram), 1.0);
}

TEST(MeasureReuseHistogramTest, NoIdsIsAllZero) { EXPECT_EQ(Sum(MeasureReuseHistogram({})), 0.0); }

TEST(ZipfReuseHistogramTest, UniformAgreesWithDrawnIds) {
  constexpr std::int64_t kRows = 20000, kIds = 60000;
  Random random(1);
  std::vector<std::int64_t> ids(kIds);
  for (std::int64_t& id : ids) id = static_cast<std::int64_t>(random.Below(kRows));
  const ReuseHistogram measured = MeasureReuseHistogram(ids);

  const ReuseHistogram expected = ZipfReuseHistogram(kRows, kIds, 0.0);

  EXPECT_NEAR(Sum(expected), 1.0, 1e-9);
  for (int bin = 0; bin < kReuseBins; ++bin) EXPECT_NEAR(expected[bin], measured[bin], 0.02) << bin;
}

TEST(ZipfReuseHistogramTest, SkewMovesMassToTheLastBins) {
  const ReuseHistogram flat = ZipfReuseHistogram(1'000'000, 1'000'000, 0.0);
  const ReuseHistogram skewed = ZipfReuseHistogram(1'000'000, 1'000'000, 1.2);
  EXPECT_EQ(flat[16], 0.0);
  EXPECT_GT(skewed[16], 0.0);
  EXPECT_NEAR(Sum(skewed), 1.0, 1e-9);
}

TEST(ZipfReuseHistogramTest, ExtremesStayAHistogram) {
  EXPECT_NEAR(Sum(ZipfReuseHistogram(1, 1, 0.0)), 1.0, 1e-9);
  EXPECT_NEAR(Sum(ZipfReuseHistogram(std::int64_t{1} << 48, 1, 1.0)), 1.0, 1e-9);
  EXPECT_NEAR(Sum(ZipfReuseHistogram(1, std::int64_t{1} << 40, 4.0)), 1.0, 1e-9);
}

TEST(ZipfHistogramsTest, WhatWasAskedBeforeDoesNotMatter) {
  for (const double exponent : {1.05, 0.5}) {
    ZipfHistograms histograms(exponent);
    for (const std::int64_t rows : {1000, 15, 1'000'000, 16, 17, 1001}) {
      EXPECT_EQ(histograms.Of(rows, 5000), ZipfReuseHistogram(rows, 5000, exponent)) << rows;
    }
  }
}

TEST(DefaultReuseHistogramTest, SumsToOne) { EXPECT_NEAR(Sum(DefaultReuseHistogram()), 1.0, 1e-5); }

}  // namespace
}  // namespace neuroshard
