#include "kernels/indices/zipf_runs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace neuroshard {
namespace {

// The last rank + 1 of run i.
std::int64_t EndOf(const ZipfRuns& zipf, std::size_t i, std::int64_t ranks) {
  return i + 1 < zipf.runs.size() ? zipf.runs[i + 1].first_rank : ranks;
}

class ZipfRunsTest : public ::testing::TestWithParam<double> {};

TEST_P(ZipfRunsTest, ProbabilitiesAreThoseOfTheDefinition) {
  const double exponent = GetParam();
  for (const std::int64_t ranks : {1, 2, 255, 256, 257, 100'000}) {
    const ZipfRuns zipf = MakeZipfRuns(ranks, exponent);
    double normaliser = 0;
    for (std::int64_t k = ranks; k > 0; --k) normaliser += std::pow(k, -exponent);
    std::int64_t keys = 0;
    for (std::size_t i = 0; i < zipf.runs.size(); ++i) {
      const RankRun& run = zipf.runs[i];
      const std::int64_t end = EndOf(zipf, i, ranks);
      EXPECT_EQ(run.first_key, keys);
      keys += run.keys_per_rank * (end - run.first_rank);
      const double probability =
          static_cast<double>(run.keys_per_rank) / static_cast<double>(zipf.num_keys);
      const double rounding = 1e-5 + 0.5 / static_cast<double>(run.keys_per_rank);
      double expected = 0;
      for (std::int64_t rank = run.first_rank; rank < end; ++rank) {
        const double own = std::pow(static_cast<double>(rank + 1), -exponent) / normaliser;
        expected += own;
        ASSERT_NEAR(probability / own, 1, exponent / 256 * 1.02 + rounding) << rank;
      }
      ASSERT_NEAR(probability * static_cast<double>(end - run.first_rank) / expected, 1, rounding)
          << run.first_rank;
    }
    EXPECT_EQ(zipf.num_keys, keys);
  }
}

INSTANTIATE_TEST_SUITE_P(Exponents, ZipfRunsTest,
                         ::testing::Values(0.0, 0.5, 0.999999999, 1.0, 1.2, 3.0));

TEST(MakeZipfRunsTest, UniformRanksAreOneRun) {
  EXPECT_EQ(MakeZipfRuns(123'456'789, 0).runs.size(), 1U);
}

TEST(MakeZipfRunsTest, HugeRangesStaySmallAndInside) {
  for (const std::int64_t ranks : {std::int64_t{1} << 48, std::int64_t{1} << 62}) {
    for (const double exponent : {0.0, 0.8, 1.0, 2.0, 50.0}) {
      const ZipfRuns zipf = MakeZipfRuns(ranks, exponent);
      EXPECT_LT(zipf.runs.size(), 6000U);
      EXPECT_GT(zipf.num_keys, std::int64_t{1} << 60);
      // The last key's rank.
      const RankRun& last = zipf.runs.back();
      EXPECT_LT(last.first_rank + (zipf.num_keys - 1 - last.first_key) / last.keys_per_rank, ranks);
    }
  }
}

}  // namespace
}  // namespace neuroshard
