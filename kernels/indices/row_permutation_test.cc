#include "kernels/indices/row_permutation.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace neuroshard {
namespace {

TEST(RowPermutationTest, IsABijection) {
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 7, 16, 17, 100, 1000, 4097}) {
    const RowPermutation permutation(rows, 5);
    std::vector<bool> seen(rows);
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t row = permutation(i);
      ASSERT_GE(row, 0);
      ASSERT_LT(row, rows);
      ASSERT_FALSE(seen[row]) << rows << " rows";
      seen[row] = true;
    }
  }
}

TEST(RowPermutationTest, ScattersNeighboursOverHugeTables) {
  constexpr std::int64_t kRows = std::int64_t{1} << 40;
  const RowPermutation permutation(kRows, 5);
  int per_eighth[8] = {};
  for (int i = 0; i < 8000; ++i) ++per_eighth[permutation(i) / (kRows / 8)];
  for (const int count : per_eighth) EXPECT_NEAR(count, 1000, 150);
}

TEST(RowPermutationTest, SeedsDiffer) {
  const RowPermutation a(1000, 1), b(1000, 2);
  int same = 0;
  for (int i = 0; i < 1000; ++i) same += a(i) == b(i);
  EXPECT_LT(same, 20);
}

}  // namespace
}  // namespace neuroshard
