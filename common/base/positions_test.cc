#include "common/base/positions.h"

#include <gtest/gtest.h>

#include <utility>

namespace neuroshard {
namespace {

TEST(PositionsTest, LargestKeysComeFirstAndEqualOnesStayInOrder) {
  const std::vector<double> keys = {2, 5, 2, 7, 5};
  EXPECT_EQ(PositionsDescending(keys.size(), [&](std::size_t i) { return keys[i]; }),
            (std::vector<std::size_t>{3, 1, 4, 0, 2}));
  EXPECT_EQ(Positions<int>(3), (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(Positions(0).empty());
}

TEST(PositionsTest, SortUniqueKeepsEachValueOnce) {
  std::vector<int> values = {3, 1, 3, 2, 1};
  SortUnique(values);
  EXPECT_EQ(values, (std::vector<int>{1, 2, 3}));
}

TEST(PositionsTest, MappedGivesResultsAndMembersInOrder) {
  const std::vector<std::pair<int, char>> values = {{2, 'a'}, {1, 'b'}};
  EXPECT_EQ(Mapped(values, &std::pair<int, char>::first), (std::vector<int>{2, 1}));
  EXPECT_EQ(Mapped<double>(values, [](const auto& value) { return value.first * 2; }),
            (std::vector<double>{4, 2}));
}

}  // namespace
}  // namespace neuroshard
