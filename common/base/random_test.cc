#include "common/base/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace neuroshard {
namespace {

TEST(RandomTest, SameSeedSameNumbers) {
  Random a(7), b(7), c(8);
  const std::uint64_t first = a.Next();
  EXPECT_EQ(first, b.Next());
  EXPECT_NE(first, c.Next());
}

TEST(RandomTest, StaysInRangeAndReachesBothEnds) {
  Random random(1);
  bool low = false, high = false;
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t value = random.Between(-2, 2);
    ASSERT_GE(value, -2);
    ASSERT_LE(value, 2);
    low |= value == -2;
    high |= value == 2;
    const double real = random.UniformReal();
    ASSERT_GE(real, 0.0);
    ASSERT_LT(real, 1.0);
  }
  EXPECT_TRUE(low && high);
}

TEST(RandomTest, ShuffleIsAPermutation) {
  std::vector<int> values(100);
  std::iota(values.begin(), values.end(), 0);
  const std::vector<int> sorted = values;
  Random(3).Shuffle(values);
  EXPECT_NE(values, sorted);
  EXPECT_THAT(values, testing::UnorderedElementsAreArray(sorted));
}

}  // namespace
}  // namespace neuroshard
