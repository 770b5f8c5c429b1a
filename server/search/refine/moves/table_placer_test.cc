#include "server/search/refine/moves/table_placer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "server/search/refine/solution/lowest_place.h"
#include "tests/support/refine_bed.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::RefineBed;

// Shards on all ranks have no choice: Solution::Allows refuses them.
void ExpectFits(const Solution& solution, const ShardTable& shards, std::span<const int> removed,
                const std::vector<Unit>& added) {
  if (TakesEveryRank(added.front().type)) return;
  std::vector<std::int64_t> more(static_cast<std::size_t>(solution.num_ranks()), 0);
  std::vector<bool> gets(more.size(), false);
  const auto count = [&](const Unit& unit, int sign) {
    for (int i = 0; i < unit.shards.count; ++i) {
      const std::size_t rank = static_cast<std::size_t>(solution.RankOf(unit, i));
      more[rank] += sign * shards.bytes(unit.shards.at(i));
      if (sign > 0) gets[rank] = true;
    }
  };
  for (const int id : removed) count(solution.unit(id), -1);
  for (const Unit& unit : added) count(unit, 1);
  for (std::size_t r = 0; r < more.size(); ++r) {
    EXPECT_TRUE(!gets[r] || solution.Fits(static_cast<int>(r), more[r]));
  }
}

// Of every unit it adds: no other place with room for it had a lower total.
TEST(TablePlacerTest, UnitsGoToTheLowestRankWithRoom) {
  int placed = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    RefineBed bed(seed);
    if (!bed.LoadLegal()) continue;
    Solution& solution = bed.bench.solution;
    TablePlacer placer(bed.bench);
    placer.Reset();
    for (int t = 0; t < static_cast<int>(bed.request.tables.size()); ++t) {
      const auto removed = solution.units_of_table(t);
      for (const TableLayout& layout : bed.layouts.Of(t)) {
        for (const std::int64_t cols : bed.layouts.Widths(t, layout.blocks)) {
          bed.layouts.Shards(bed.bench.shard_table, t, layout, cols);
        }
        bed.bench.shard_table.PredictNew();
        placer.Without(removed);
        const std::vector<double> before(placer.total_ms().begin(), placer.total_ms().end());
        if (!placer.Place(t, layout)) continue;
        std::int64_t cols = 0;
        for (const Unit& unit : placer.added()) {
          EXPECT_EQ(unit.type, layout.type);
          cols += unit.cols;
        }
        EXPECT_EQ(cols, bed.request.tables[static_cast<std::size_t>(t)].embedding_dim);
        ExpectFits(solution, bed.bench.shard_table, removed, placer.added());
        if (layout.type != ShardingType::kTableWise) continue;
        ++placed;
        Unit other = placer.added().front();
        const double at_ms = before[static_cast<std::size_t>(other.place)];
        for (other.place = 0; other.place < bed.num_ranks(); ++other.place) {
          if (before[static_cast<std::size_t>(other.place)] >= at_ms) continue;
          std::int64_t left = solution.LeftBytes(other.place);
          for (const int id : removed) {
            const Unit& unit = solution.unit(id);
            for (int i = 0; i < unit.shards.count; ++i) {
              if (solution.RankOf(unit, i) == other.place) {
                left += bed.bench.shard_table.bytes(unit.shards.at(i));
              }
            }
          }
          EXPECT_TRUE(!bed.rules.of(t).ranks->contains(other.place) ||
                      bed.bench.shard_table.bytes(other.shards.full) > left);
        }
      }
    }
  }
  EXPECT_GT(placed, 50);
}

TEST(TablePlacerTest, WithoutGoesBackToTheSolution) {
  RefineBed bed(4);
  ASSERT_TRUE(bed.LoadLegal());
  TablePlacer placer(bed.bench);
  placer.Reset();
  const std::vector<double> now(placer.total_ms().begin(), placer.total_ms().end());
  placer.Without(bed.bench.solution.units_of_table(0));
  placer.Place(0, bed.layouts.Of(0).front());
  placer.Without({});
  EXPECT_TRUE(placer.added().empty());
  for (int r = 0; r < bed.num_ranks(); ++r) {
    const std::size_t rank = static_cast<std::size_t>(r);
    EXPECT_EQ(placer.total_ms()[rank], now[rank]);
    EXPECT_EQ(now[rank], bed.bench.pricer.objective().rank(r).total_ms());
  }
  const auto hosts = LowestHosts(bed.rules.hosts(), placer.total_ms(), 100, 0);
  EXPECT_EQ(std::ssize(hosts), bed.bench.solution.num_hosts() - 1);
  EXPECT_EQ(std::count(hosts.begin(), hosts.end(), 0), 0);
}

}  // namespace
}  // namespace neuroshard
