#include "server/search/refine/solution/move.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "common/base/random.h"

namespace neuroshard {
namespace {

TEST(MoveListTest, KeepsTheLowestEstimatesAndOfEqualOnesTheFirst) {
  Random random(7);
  MoveList list(6);
  for (int round = 0; round < 50; ++round) {
    list.Clear();
    EXPECT_TRUE(list.empty());
    std::vector<std::pair<double, int>> all;
    const int moves = static_cast<int>(random.Between(0, 30));
    for (int i = 0; i < moves; ++i) {
      const double estimate_ms = static_cast<double>(random.Below(8));
      std::vector<std::pair<double, int>> best = all;
      std::sort(best.begin(), best.end());
      EXPECT_EQ(list.Wants(estimate_ms), best.size() < 6 || estimate_ms < best[5].first);
      const std::vector<int> removed = {i, i + 1};
      const Unit added{.table = i, .cols = 4};
      list.Add(estimate_ms, std::span(removed).first(static_cast<std::size_t>(i % 3)), {&added, 1});
      all.emplace_back(estimate_ms, i);
    }
    std::sort(all.begin(), all.end());
    all.resize(std::min<std::size_t>(all.size(), 6));
    const auto sorted = list.Sorted();
    ASSERT_EQ(sorted.size(), all.size());
    for (std::size_t m = 0; m < all.size(); ++m) {
      const auto& [estimate_ms, i] = all[m];
      EXPECT_EQ(sorted[m].estimate_ms, estimate_ms);
      ASSERT_EQ(list.removed(sorted[m]).size(), static_cast<std::size_t>(i % 3));
      if (i % 3 > 0) {
        EXPECT_EQ(list.removed(sorted[m])[0], i);
      }
      ASSERT_EQ(list.added(sorted[m]).size(), 1U);
      EXPECT_EQ(list.added(sorted[m])[0].table, i);
    }
  }
}

}  // namespace
}  // namespace neuroshard
