#include "server/search/refine/initial/memory_knapsack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "common/base/random.h"

namespace neuroshard {
namespace {

struct Total {
  double cost_ms = 0;
  double device_bytes = 0;
  double host_bytes = 0;
};

Total TotalOf(const std::vector<std::vector<TableHolding>>& tables,
              const std::vector<int>& chosen) {
  Total total;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    if (chosen[t] < 0) continue;
    const TableHolding& holding = tables[t][static_cast<std::size_t>(chosen[t])];
    total.cost_ms += holding.cost_ms;
    total.device_bytes += static_cast<double>(holding.bytes[MemoryTier::kDevice]);
    total.host_bytes += static_cast<double>(holding.bytes[MemoryTier::kHost]);
  }
  return total;
}

// Of each table one holding at least takes no host memory.
std::vector<std::vector<TableHolding>> RandomTables(Random& random, int tables, int holdings) {
  std::vector<std::vector<TableHolding>> made(static_cast<std::size_t>(tables));
  for (auto& of_table : made) {
    for (int h = 0; h < holdings; ++h) {
      const auto bytes = static_cast<std::int64_t>(random.Below(1000));
      const bool in_host_memory = h > 0 && random.Below(3) > 0;
      of_table.push_back(
          {10 * random.UniformReal() + (in_host_memory ? 1 : 0),
           {bytes, in_host_memory ? static_cast<std::int64_t>(random.Below(1000)) : 0}});
    }
    std::sort(of_table.begin(), of_table.end(), [](const TableHolding& a, const TableHolding& b) {
      return a.bytes[MemoryTier::kDevice] < b.bytes[MemoryTier::kDevice];
    });
  }
  return made;
}

// The least cost of all choices that fit.
double LeastMs(const std::vector<std::vector<TableHolding>>& tables, double device_room,
               double host_room) {
  std::vector<int> chosen(tables.size(), 0);
  double least_ms = std::numeric_limits<double>::infinity();
  while (true) {
    const Total total = TotalOf(tables, chosen);
    if (total.device_bytes <= device_room && total.host_bytes <= host_room) {
      least_ms = std::min(least_ms, total.cost_ms);
    }
    std::size_t t = 0;
    while (t < tables.size() && ++chosen[t] == static_cast<int>(tables[t].size())) chosen[t++] = 0;
    if (t == tables.size()) return least_ms;
  }
}

TEST(FillMemoriesTest, IsNearlyAlwaysTheBestChoiceWhereHostsHaveRoom) {
  Random random(1);
  int best = 0;
  for (int round = 0; round < 300; ++round) {
    const auto tables = RandomTables(random, 5, 4);
    double least_bytes = 0, largest_ms = 0;
    for (const auto& of_table : tables) {
      least_bytes += static_cast<double>(of_table.front().bytes[MemoryTier::kDevice]);
      for (const TableHolding& holding : of_table) {
        largest_ms = std::max(largest_ms, holding.cost_ms);
      }
    }
    const double room = least_bytes + 2000 * random.UniformReal();
    const Total total = TotalOf(tables, FillMemories(tables, {room, 1e9}));
    EXPECT_LE(total.device_bytes, room) << round;
    const double least_ms = LeastMs(tables, room, 1e9);
    EXPECT_GE(total.cost_ms, least_ms - 1e-9) << round;
    EXPECT_LE(total.cost_ms, least_ms + largest_ms) << round;
    best += total.cost_ms < least_ms + 1e-9;
  }
  EXPECT_GT(best, 285);  // but for bytes that are rounded
}

TEST(FillMemoriesTest, KeepsToHostMemoryWhereAPriceOnItDoes) {
  Random random(2);
  int kept = 0;
  for (int round = 0; round < 300; ++round) {
    const auto tables = RandomTables(random, 6, 6);
    const double host_room = 100 + 600 * random.UniformReal();
    const Total free = TotalOf(tables, FillMemories(tables, {1e9, 1e9}));
    const Total total = TotalOf(tables, FillMemories(tables, {1e9, host_room}));
    EXPECT_LE(total.host_bytes, host_room) << round;
    EXPECT_GE(total.cost_ms, free.cost_ms - 1e-9) << round;
    if (free.host_bytes > host_room) ++kept;
  }
  EXPECT_GT(kept, 20);
}

TEST(FillMemoriesTest, KeepsToSsdsAndHostMemoryWherePricesDo) {
  Random random(3);
  int kept = 0, both = 0;
  for (int round = 0; round < 200; ++round) {
    auto tables = RandomTables(random, 6, 8);
    for (auto& of_table : tables) {
      for (TableHolding& holding : of_table) {
        if (random.Below(2) == 0)
          std::swap(holding.bytes[MemoryTier::kHost], holding.bytes[MemoryTier::kSsd]);
      }
    }
    const auto on_ssd = [&](const std::vector<int>& chosen) {
      double bytes = 0;
      for (std::size_t t = 0; t < tables.size(); ++t) {
        bytes += static_cast<double>(
            tables[t][static_cast<std::size_t>(chosen[t])].bytes[MemoryTier::kSsd]);
      }
      return bytes;
    };
    const double host_room = 100 + 600 * random.UniformReal();
    const double ssd_room = 100 + 600 * random.UniformReal();
    ByTier<double> room = {1e9, 1e9};
    room[MemoryTier::kSsd] = 1e9;
    const std::vector<int> free = FillMemories(tables, room);
    room[MemoryTier::kHost] = host_room;
    room[MemoryTier::kSsd] = ssd_room;
    const std::vector<int> chosen = FillMemories(tables, room);
    EXPECT_LE(TotalOf(tables, chosen).host_bytes, host_room) << round;
    EXPECT_LE(on_ssd(chosen), ssd_room) << round;
    EXPECT_GE(TotalOf(tables, chosen).cost_ms, TotalOf(tables, free).cost_ms - 1e-9) << round;
    if (on_ssd(free) > ssd_room) ++kept;
    if (on_ssd(free) > ssd_room && TotalOf(tables, free).host_bytes > host_room) ++both;
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(both, 5);
}

TEST(FillMemoriesTest, DynamicProgrammingTakesNoMoreTimeOrMemoryThanTheGreedyChoice) {
  Random random(4);
  int cheaper = 0, short_hosts = 0;
  for (int round = 0; round < 300; ++round) {
    auto tables = RandomTables(random, 1 + static_cast<int>(random.Below(120)), 5);
    if (round % 3 == 0) tables.emplace_back();
    double device_bytes = 0, host_bytes = 0;
    for (const auto& of_table : tables) {
      if (of_table.empty()) continue;
      device_bytes += static_cast<double>(of_table.back().bytes[MemoryTier::kDevice]);
      host_bytes += static_cast<double>(of_table.front().bytes[MemoryTier::kHost]);
    }
    const ByTier<double> room = {device_bytes * random.UniformReal(),
                                 host_bytes * (0.5 + random.UniformReal())};
    const Total greedy = TotalOf(tables, FillMemories(tables, room, 1, KnapsackMethod::kGreedy));
    const Total best = TotalOf(tables, FillMemories(tables, room));
    EXPECT_LE(best.cost_ms, greedy.cost_ms) << round;
    EXPECT_LE(best.device_bytes, std::max(room[MemoryTier::kDevice], greedy.device_bytes)) << round;
    EXPECT_LE(best.host_bytes, std::max(room[MemoryTier::kHost], greedy.host_bytes)) << round;
    if (best.cost_ms < greedy.cost_ms) ++cheaper;
    if (host_bytes > room[MemoryTier::kHost]) ++short_hosts;
  }
  EXPECT_GT(cheaper, 20);
  EXPECT_GT(short_hosts, 100);
}

TEST(FillMemoriesTest, AStopLeavesEveryTableAHolding) {
  Random random(5);
  const auto tables = RandomTables(random, 20, 5);
  int asked = 0;
  const std::vector<int> chosen = FillMemories(
      tables, {1000, 100}, 1, KnapsackMethod::kDynamicProgramming, [&] { return ++asked > 2; });
  EXPECT_EQ(std::count(chosen.begin(), chosen.end(), -1), 0);
  EXPECT_LT(asked, 10);
}

TEST(FillMemoriesTest, ATableWithoutHoldingsHasNone) {
  EXPECT_EQ(FillMemories({{}, {{1, {}}}}, {10, 10}), (std::vector<int>{-1, 0}));
}

}  // namespace
}  // namespace neuroshard
