#include <gtest/gtest.h>

#include <cstdint>

#include "common/domain/expected_lookups.h"

namespace neuroshard {
namespace {

TEST(CacheHitsTest, MoreCacheNeverMissesMore) {
  for (const double ids : {1.0, 100.0, 1e5, 1e7, 1e10}) {
    for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{1000}, std::int64_t{1} << 40}) {
      double before = 0;
      for (const double load_factor : {0.0, 1e-6, 0.001, 0.1, 0.2, 0.5, 0.9, 0.999999, 1.0}) {
        const CacheHits hits = ExpectedCacheHits(DefaultReuseHistogram(), rows, ids, load_factor);
        EXPECT_GE(hits.hit_rate, before - 1e-5) << ids << " " << rows << " " << load_factor;
        EXPECT_LE(hits.hit_rate, 1);
        EXPECT_LE(hits.distinct_ids, static_cast<double>(rows) * (1 + 1e-9));
        EXPECT_LE(hits.distinct_ids, ids * (1 + 1e-9));
        before = hits.hit_rate;
      }
      EXPECT_EQ(before, 1);
    }
  }
}

TEST(CacheHitsTest, NothingToLookUpNothingMissed) {
  EXPECT_EQ(ExpectedCacheHits(DefaultReuseHistogram(), 100, 0, 0.2).missed_rows(), 0);
}

// Every id once in a table far larger than the batch: the cache holds its share of any ids.
TEST(CacheHitsTest, WithoutReuseHitsAreTheLoadFactor) {
  for (const ReuseHistogram& histogram : {ReuseHistogram{}, ReuseHistogram{1}}) {
    EXPECT_NEAR(ExpectedCacheHits(histogram, 1'000'000, 1000, 0.3).hit_rate, 0.3, 0.01);
  }
}

}  // namespace
}  // namespace neuroshard
