#include "server/evaluate/memory_choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "common/base/random.h"
#include "tests/support/trials.h"

namespace neuroshard {
namespace {

using ::testing::ElementsAre;

const std::vector<CacheStep> kSteps = {{0, 1}, {0.1, 0.6}, {0.3, 0.5}, {0.5, 0.2}, {1, 0.1}};

struct Place {
  double total_ms = 0;
  double device_bytes = 0;
};

// What a table takes and pays in all.
std::vector<Place> AllOf(const TableChoices& table) {
  std::vector<Place> all;
  for (const MemoryChoice& choice : table.choices) {
    for (const CostFloor& floor : choice.floors) {
      all.push_back({floor.total_ms, choice.device_bytes});
    }
  }
  for (const KernelTotals& totals : table.cached) {
    for (const CacheStep& step : kSteps) {
      all.push_back({totals.fused_ms + step.share * (totals.fused_uvm_ms - totals.fused_ms),
                     table.least_cache_bytes +
                         step.load_factor * (table.most_cache_bytes - table.least_cache_bytes)});
    }
  }
  return all;
}

// The cheapest sum of totals within the capacity; infinite where nothing fits.
double Cheapest(const MemoryChoices& choices, std::size_t from, double left_bytes) {
  if (left_bytes < 0) return std::numeric_limits<double>::infinity();
  if (from == choices.tables.size()) return 0;
  double best = std::numeric_limits<double>::infinity();
  for (const Place& choice : AllOf(choices.tables[from])) {
    best = std::min(
        best, choice.total_ms + Cheapest(choices, from + 1, left_bytes - choice.device_bytes));
  }
  return best;
}

double BoundAt(const MemoryChoices& choices, double price, double capacity_bytes) {
  double sum = -price * capacity_bytes;
  for (const TableChoices& table : choices.tables) {
    double least = std::numeric_limits<double>::infinity();
    for (const CostFloor& floor : FloorsAtPrice(table, choices.caches, price, 1)) {
      least = std::min(least, floor.total_ms);
    }
    sum += least;
  }
  return sum;
}

TEST(CacheCurveTest, FindsTheCheapestStepAtAnyPrice) {
  Random random(5);
  for (int round = 0; round < testing::Trials(200); ++round) {
    std::vector<CacheStep> steps(random.Between(1, 20));
    for (CacheStep& step : steps) step = {random.UniformReal(), random.UniformReal()};
    const CacheCurve curve(steps);
    for (const double price : {0.0, 0.1, 1.0, 10.0, 3 * random.UniformReal(), 1e300}) {
      const auto cost = [price](const CacheStep& s) { return s.share + price * s.load_factor; };
      const auto least = std::min_element(
          steps.begin(), steps.end(),
          [&](const CacheStep& a, const CacheStep& b) { return cost(a) < cost(b); });
      EXPECT_DOUBLE_EQ(cost(curve.Cheapest(price)), cost(*least)) << "round " << round;
    }
  }
}

TEST(MemoryPriceTest, NoChoiceThatFitsIsBelowTheBoundAtAnyPrice) {
  Random random(3);
  double share_sum = 0;
  int priced = 0;
  for (int round = 0; round < testing::Trials(200); ++round) {
    MemoryChoices choices = {std::vector<TableChoices>(random.Between(1, 5)), CacheCurve(kSteps)};
    double all_bytes = 0;
    for (TableChoices& table : choices.tables) {
      const double ms = 1 + 9 * random.UniformReal();
      const double device_bytes = 100 * (1 + 9 * random.UniformReal());
      all_bytes += device_bytes;
      if (random.Below(5) != 0) table.choices = {{{{ms / 2, ms * 1.5}, {ms, ms}}, device_bytes}};
      if (random.Below(5) != 0 || table.empty()) table.choices.push_back({{{10 * ms, 10 * ms}}, 0});
      if (random.Below(3) != 0) {
        table.cached = {{2 * ms, 9 * ms}, {3 * ms, 8 * ms}};
        table.least_cache_bytes = 3;
        table.most_cache_bytes = 1.1 * device_bytes;
      }
    }
    const double capacity = all_bytes * random.UniformReal();
    const double best_ms = Cheapest(choices, 0, capacity);
    const double price = PriceOfMemory(choices, capacity);
    if (best_ms == std::numeric_limits<double>::infinity()) continue;
    for (const double any : {0.0, price / 2, price, 2 * price, random.UniformReal()}) {
      EXPECT_LE(BoundAt(choices, any, capacity), best_ms * (1 + 1e-9)) << "round " << round;
      EXPECT_LE(BoundAt(choices, any, capacity), BoundAt(choices, price, capacity) + 1e-4 * best_ms)
          << "no price gives more";
    }
    if (price == 0) continue;
    share_sum += BoundAt(choices, price, capacity) / best_ms;
    ++priced;
  }
  EXPECT_GE(priced, testing::FewestCases(81));
  EXPECT_GT(share_sum / priced, 0.8);
}

TEST(MemoryPriceTest, MemoryIsFreeWhereEverythingFitsAndWhereNothingDoes) {
  MemoryChoices choices = {{TableChoices()}, CacheCurve(kSteps)};
  TableChoices& table = choices.tables[0];
  table.choices = {{{{1, 1}}, 100}};
  EXPECT_EQ(PriceOfMemory(choices, 100), 0);
  EXPECT_EQ(PriceOfMemory(choices, 99), 0);
  table.choices.push_back({{{3, 3}}, 0});
  EXPECT_NEAR(PriceOfMemory(choices, 99), 0.02, 1e-6);
}

TEST(MemoryPriceTest, FloorsHaveTheirMemoryInTheTotalAndNotInThePeak) {
  const CacheCurve caches(kSteps);
  TableChoices table;
  table.choices = {{{{2, 8}, {4, 4}}, 10}, {{{3, 9}}, 1}};
  EXPECT_THAT(FloorsAtPrice(table, caches, 1, 3), ElementsAre(CostFloor{2, 18}, CostFloor{3, 10}));
  EXPECT_THAT(FloorsAtPrice(table, caches, 0, 3), ElementsAre(CostFloor{2, 8}, CostFloor{4, 4}));
  // Half of the rows: 4 ms and 5 bytes. The peak is that of a cache for all of them.
  table.cached = {{3, 8}};
  table.most_cache_bytes = 10;
  EXPECT_THAT(FloorsAtPrice(table, caches, 0.1, 3), ElementsAre(CostFloor{3.5 / 3, 4.5}));
}

}  // namespace
}  // namespace neuroshard
