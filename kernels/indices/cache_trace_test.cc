// Expected cache hits against caches that traces of generated ids go through.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/domain/expected_lookups.h"
#include "common/domain/testing/reuse_histograms.h"
#include "kernels/indices/lookup_generator.h"
#include "kernels/indices/testing/zipf_lookups.h"

namespace neuroshard {
namespace {

// A table's batches, drawn independently from one law.
class Trace {
 public:
  Trace(std::int64_t rows, std::int64_t ids, double exponent)
      : plan_(PlanZipfLookups({.rows = rows, .batch_size = ids, .pooling_factor = 1, .seed = 7},
                              exponent)
                  .value()) {}

  std::vector<std::int64_t> NextBatch() {
    plan_.rule.draw_seed += 1'000'000'007;
    return ExpandLookups(plan_).ids;
  }

 private:
  LookupPlan plan_;
};

// A least recently used cache that takes a batch's distinct ids at once.
class BatchLru {
 public:
  BatchLru(std::int64_t rows, std::int64_t slots) : slots_(slots), last_used_(rows, -1) {}

  // Hits.
  std::int64_t LookUp(std::vector<std::int64_t> ids) {
    ++batch_;
    std::vector<std::int64_t> missing;
    std::int64_t hits = 0;
    for (const std::int64_t id : ids) {  // in random order
      if (!batch_ids_.insert({batch_, id}).second) continue;
      if (last_used_[id] < 0) {
        missing.push_back(id);
        continue;
      }
      ++hits;
      Use(id);
    }
    distinct_ids_ = hits + static_cast<std::int64_t>(missing.size());
    batch_ids_.clear();
    for (const std::int64_t id : missing) {
      if (std::ssize(by_age_) == slots_) {
        const auto [age, oldest] = *by_age_.begin();
        if (age == batch_) break;
        by_age_.erase(by_age_.begin());
        last_used_[oldest] = -1;
      }
      Use(id);
    }
    return hits;
  }
  std::int64_t distinct_ids() const { return distinct_ids_; }

 private:
  void Use(std::int64_t id) {
    by_age_.erase({last_used_[id], id});
    last_used_[id] = batch_;
    by_age_.insert({batch_, id});
  }

  std::int64_t slots_;
  std::int64_t batch_ = 0;
  std::int64_t distinct_ids_ = 0;
  std::vector<std::int64_t> last_used_;  // batch; -1: not in the cache
  std::set<std::pair<std::int64_t, std::int64_t>> by_age_, batch_ids_;
};

struct Law {
  std::int64_t rows, ids;
  double exponent;
};

class CacheTraceTest : public ::testing::TestWithParam<Law> {};

TEST_P(CacheTraceTest, AgreesWithACacheThatATraceGoesThrough) {
  const auto [rows, ids, exponent] = GetParam();
  Trace trace(rows, ids, exponent);
  const ReuseHistogram histogram = MeasureReuseHistogram(trace.NextBatch());
  for (const double load_factor : {0.02, 0.1, 0.2, 0.5}) {
    BatchLru cache(rows, static_cast<std::int64_t>(load_factor * static_cast<double>(rows)));
    std::int64_t hits = 0, distinct = 0;
    for (int batch = 0; batch < 30; ++batch) {
      const std::int64_t found = cache.LookUp(trace.NextBatch());
      if (batch < 20) continue;
      hits += found;
      distinct += cache.distinct_ids();
    }
    const CacheHits expected =
        ExpectedCacheHits(histogram, rows, static_cast<double>(ids), load_factor);
    EXPECT_NEAR(expected.hit_rate, static_cast<double>(hits) / static_cast<double>(distinct), 0.045)
        << load_factor;
    EXPECT_NEAR(expected.distinct_ids, static_cast<double>(distinct) / 10,
                0.22 * expected.distinct_ids)
        << load_factor;
  }
}

// Batches made for a histogram are drawn by the law that the expectation is of.
TEST_P(CacheTraceTest, IndependentLookupsHaveTheExpectedHits) {
  const auto [rows, ids, exponent] = GetParam();
  const ReuseHistogram histogram = MeasureReuseHistogram(Trace(rows, ids, exponent).NextBatch());
  const LookupSpec spec = {.rows = rows, .batch_size = ids, .pooling_factor = 1, .seed = 5};
  for (const double load_factor : {0.1, 0.5}) {
    BatchLru cache(rows, static_cast<std::int64_t>(load_factor * static_cast<double>(rows)));
    std::int64_t hits = 0, distinct = 0;
    for (int batch = 0; batch < 30; ++batch) {
      const std::int64_t found =
          cache.LookUp(ExpandLookups(PlanIndependentLookups(spec, histogram, batch).value()).ids);
      if (batch < 20) continue;
      hits += found;
      distinct += cache.distinct_ids();
    }
    const CacheHits expected =
        ExpectedCacheHits(histogram, rows, static_cast<double>(ids), load_factor);
    EXPECT_NEAR(expected.hit_rate, static_cast<double>(hits) / static_cast<double>(distinct), 0.02)
        << load_factor;
    EXPECT_NEAR(expected.distinct_ids, static_cast<double>(distinct) / 10,
                0.03 * expected.distinct_ids)
        << load_factor;
  }
}

// From batches far smaller than the table to one that looks up nearly every row.
INSTANTIATE_TEST_SUITE_P(Laws, CacheTraceTest,
                         ::testing::Values(Law{2500, 1000, 0}, Law{2500, 1000, 0.8},
                                           Law{2500, 5000, 1.05}, Law{4000, 1000, 1.05},
                                           Law{4000, 8000, 0.6}, Law{8000, 8000, 1.2},
                                           Law{300, 4000, 1.0}),
                         [](const auto& law) {
                           return std::to_string(law.param.rows) + "Rows" +
                                  std::to_string(law.param.ids) + "Ids" +
                                  std::to_string(std::llround(100 * law.param.exponent));
                         });

}  // namespace
}  // namespace neuroshard
