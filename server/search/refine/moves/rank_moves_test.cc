#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <set>

#include "server/search/refine/moves/neighbourhood.h"
#include "tests/support/refine_bed.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::RefineBed;

TEST(RankMovesTest, ColumnsAreNeitherLostNorMade) {
  int shifts = 0;
  int swaps = 0;
  int reached = 0;  // ranks from a source
  int all_others = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    RefineBed bed(seed);
    if (!bed.LoadLegal()) continue;
    const Solution& solution = bed.bench.solution;
    const auto moves = MakeRankMoves(bed.bench);
    for (int source = 0; source < bed.num_ranks(); ++source) {
      MoveList list(100'000);
      moves->Collect(source, std::numeric_limits<double>::infinity(), list);
      std::set<int> targets;
      for (const Move& move : list.Sorted()) {
        std::map<int, std::int64_t> more_cols;  // by table
        std::set<int> ranks;
        ASSERT_EQ(solution.unit(list.removed(move).front()).place, source);
        for (const int id : list.removed(move)) {
          const Unit& unit = solution.unit(id);
          ASSERT_EQ(unit.spread(), Spread::kRank);
          more_cols[unit.table] -= unit.cols;
          ranks.insert(unit.place);
        }
        for (const Unit& unit : list.added(move)) {
          ASSERT_EQ(unit.spread(), Spread::kRank);
          EXPECT_GT(unit.cols, 0);
          more_cols[unit.table] += unit.cols;
          ranks.insert(unit.place);
        }
        for (const auto& [table, cols] : more_cols) EXPECT_EQ(cols, 0) << table;
        ASSERT_EQ(ranks.size(), 2U);
        ranks.erase(source);
        ASSERT_EQ(ranks.size(), 1U);
        targets.merge(ranks);
        ++(more_cols.size() == 1 ? shifts : swaps);
      }
      if (list.empty()) continue;
      reached += static_cast<int>(targets.size());
      all_others += bed.num_ranks() - 1;  // 16 would be tried
    }
  }
  EXPECT_GT(shifts, 500);
  EXPECT_GT(swaps, 200);
  EXPECT_GT(reached, 0.8 * all_others);
}

}  // namespace
}  // namespace neuroshard
