#include "server/search/refine/solution/solution.h"

#include <gmock/gmock.h>

#include <map>
#include <set>
#include <vector>

#include "tests/support/refine_bed.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::RefineBed;
using ::testing::UnorderedElementsAreArray;

// What `solution` should hold, from scratch.
void ExpectHolds(const Solution& solution, const std::map<int, Unit>& units,
                 const ShardTable& shards, const PlanRequest& request) {
  std::vector<Solution::Rank> ranks(static_cast<std::size_t>(solution.num_ranks()));
  MemoryPools pools(request);
  std::vector<double> sums(ranks.size() * shards.width());
  std::vector<std::vector<int>> of_table(request.tables.size());
  std::vector<std::vector<int>> on_rank(ranks.size());
  ShardKinds kinds;
  for (const auto& [id, unit] : units) {
    of_table[static_cast<std::size_t>(unit.table)].push_back(id);
    if (unit.spread() == Spread::kRank) on_rank[static_cast<std::size_t>(unit.place)].push_back(id);
    for (int i = 0; i < unit.shards.count; ++i) {
      const int shard = unit.shards.at(i);
      const std::size_t r = static_cast<std::size_t>(solution.RankOf(unit, i));
      ranks[r].forward_load += static_cast<double>(shards.load(shard).forward);
      ranks[r].backward_load += static_cast<double>(shards.load(shard).backward);
      pools.Add(static_cast<int>(r), shards.tier_bytes(shard));
      ranks[r].content += ContentOf(shard);
      ++ranks[r].shards;
      if (i == 0) kinds |= shards.load(shard).kinds;
      for (std::size_t w = 0; w < shards.width(); ++w) {
        sums[r * shards.width() + w] += static_cast<double>(shards.phi(shard)[w]);
      }
    }
  }
  EXPECT_EQ(solution.kinds(), kinds);
  for (int t = 0; t < std::ssize(request.tables); ++t) {
    EXPECT_THAT(solution.units_of_table(t),
                UnorderedElementsAreArray(of_table[static_cast<std::size_t>(t)]));
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const int rank = static_cast<int>(r);
    const Solution::Rank& held = solution.rank(rank);
    EXPECT_THAT(solution.units_on_rank(rank), UnorderedElementsAreArray(on_rank[r]));
    EXPECT_EQ(held.content, ranks[r].content);
    EXPECT_EQ(solution.pools().Left(rank), pools.Left(rank));
    EXPECT_EQ(held.shards, ranks[r].shards);
    EXPECT_NEAR(held.forward_load, ranks[r].forward_load, 1e-9);
    EXPECT_NEAR(held.backward_load, ranks[r].backward_load, 1e-9);
    for (std::size_t w = 0; w < shards.width(); ++w) {
      EXPECT_NEAR(solution.sum(rank)[w], sums[r * shards.width() + w], 1e-9);
    }
  }
}

TEST(SolutionTest, HoldsWhatWasAddedAndNotRemoved) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    RefineBed bed(seed);
    if (!bed.request.constraints.empty()) continue;  // rules count what is allowed alone
    Solution& solution = bed.bench.solution;
    std::map<int, Unit> units;
    for (int step = 0; step < 60; ++step) {
      if (units.empty() || bed.random().Below(3) != 0) {
        const Unit unit = bed.RandomUnit();
        units[solution.Add(unit)] = unit;
      } else {
        const auto gone =
            std::next(units.begin(), static_cast<std::ptrdiff_t>(bed.random().Below(units.size())));
        solution.Remove(gone->first);
        units.erase(gone);
      }
      if (step % 10 == 9) {
        ExpectHolds(solution, units, bed.bench.shard_table, bed.request);
      }
    }
  }
}

TEST(SolutionTest, UndoneInTheOppositeOrderEverythingHasItsIdAgain) {
  RefineBed bed(4);
  ASSERT_TRUE(bed.LoadLegal());
  Solution& solution = bed.bench.solution;
  std::map<int, Unit> before;
  for (std::size_t t = 0; t < bed.request.tables.size(); ++t) {
    for (const int id : solution.units_of_table(static_cast<int>(t)))
      before[id] = solution.unit(id);
  }
  std::vector<Unit> removed;
  std::vector<int> added;
  for (const auto& [id, unit] : before) {
    solution.Remove(id);
    removed.push_back(unit);
  }
  for (int i = 0; i < 10; ++i) added.push_back(solution.Add(bed.RandomUnit()));
  for (; !added.empty(); added.pop_back()) solution.Remove(added.back());
  for (; !removed.empty(); removed.pop_back()) solution.Add(removed.back());
  ExpectHolds(solution, before, bed.bench.shard_table, bed.request);
}

TEST(SolutionTest, FixedTablesStay) {
  RefineBed bed(4);
  ASSERT_TRUE(bed.LoadLegal());
  Solution& solution = bed.bench.solution;
  const Plan plan = bed.PlanOf(solution.Units());
  FixedTables fixed;
  fixed.assign(bed.request.tables.size(), nullptr);
  fixed[0] = &plan.tables[0];
  bed.bench.Fix(fixed);
  EXPECT_FALSE(solution.fixed_units().empty());
  bed.bench.Load(plan);
  const int id = solution.units_of_table(0).front();
  const Unit same = solution.unit(id);
  EXPECT_FALSE(solution.Allows({&id, 1}, {&same, 1}));
}

}  // namespace
}  // namespace neuroshard
