#include "server/evaluate/memory_price.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "common/base/random.h"
#include "tests/support/trials.h"

namespace neuroshard {
namespace {

using ::testing::ElementsAre;

// The cheapest sum of totals within the capacity; infinite where nothing fits.
double Cheapest(const std::vector<TableChoices>& tables, std::size_t from, double left_bytes) {
  if (left_bytes < 0) return std::numeric_limits<double>::infinity();
  if (from == tables.size()) return 0;
  double best = std::numeric_limits<double>::infinity();
  for (const CostFloor& floor : tables[from].on_device) {
    best = std::min(
        best, floor.total_ms + Cheapest(tables, from + 1, left_bytes - tables[from].device_bytes));
  }
  for (const OffDeviceChoice& choice : tables[from].off_device) {
    best = std::min(best,
                    choice.total_ms + Cheapest(tables, from + 1, left_bytes - choice.device_bytes));
  }
  return best;
}

double BoundAt(const std::vector<TableChoices>& tables, double price, double capacity_bytes) {
  double sum = -price * capacity_bytes;
  for (const TableChoices& table : tables) {
    double least = std::numeric_limits<double>::infinity();
    for (const CostFloor& floor : FloorsAtPrice(table, price, 1)) {
      least = std::min(least, floor.total_ms);
    }
    sum += least;
  }
  return sum;
}

TEST(MemoryPriceTest, NoChoiceThatFitsIsBelowTheBoundAtAnyPrice) {
  Random random(3);
  double share_sum = 0;
  int priced = 0;
  for (int round = 0; round < testing::Trials(200); ++round) {
    std::vector<TableChoices> tables(random.Between(1, 6));
    double all_bytes = 0;
    for (TableChoices& table : tables) {
      const double ms = 1 + 9 * random.UniformReal();
      table.device_bytes = 100 * (1 + 9 * random.UniformReal());
      all_bytes += table.device_bytes;
      if (random.Below(5) != 0) table.on_device = {{ms / 2, ms * 1.5}, {ms, ms}};
      if (random.Below(5) != 0 || table.on_device.empty()) {
        table.off_device = {{10 * ms, 0}, {5 * ms, table.device_bytes / 2}};
      }
    }
    const double capacity = all_bytes * random.UniformReal();
    const double best_ms = Cheapest(tables, 0, capacity);
    const double price = PriceOfMemory(tables, capacity);
    if (best_ms == std::numeric_limits<double>::infinity()) continue;
    for (const double any : {0.0, price / 2, price, 2 * price, random.UniformReal()}) {
      EXPECT_LE(BoundAt(tables, any, capacity), best_ms * (1 + 1e-9)) << "round " << round;
      EXPECT_LE(BoundAt(tables, any, capacity), BoundAt(tables, price, capacity) + 1e-4 * best_ms)
          << "no price gives more";
    }
    if (price == 0) continue;
    share_sum += BoundAt(tables, price, capacity) / best_ms;
    ++priced;
  }
  EXPECT_GT(priced, testing::Trials(80));
  EXPECT_GT(share_sum / priced, 0.8);
}

TEST(MemoryPriceTest, MemoryIsFreeWhereEverythingFitsAndWhereNothingDoes) {
  TableChoices table;
  table.on_device = {{1, 1}};
  table.device_bytes = 100;
  EXPECT_EQ(PriceOfMemory({{table}}, 100), 0);
  EXPECT_EQ(PriceOfMemory({{table}}, 99), 0);
  table.off_device = {{3, 0}};
  EXPECT_NEAR(PriceOfMemory({{table}}, 99), 0.02, 1e-6);
}

TEST(MemoryPriceTest, FloorsHaveTheirMemoryInTheTotalAndNotInThePeak) {
  TableChoices table;
  table.on_device = {{2, 8}, {4, 4}};
  table.device_bytes = 10;
  table.off_device = {{9, 1}};
  EXPECT_THAT(FloorsAtPrice(table, 1, 3), ElementsAre(CostFloor{2, 18}, CostFloor{3, 10}));
  EXPECT_THAT(FloorsAtPrice(table, 0, 3), ElementsAre(CostFloor{2, 8}, CostFloor{4, 4}));
}

}  // namespace
}  // namespace neuroshard
