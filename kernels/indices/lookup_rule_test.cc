#include "kernels/indices/lookup_rule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/indices/counter_random.h"

namespace neuroshard {
namespace {

TEST(RandomPermutationTest, IsABijection) {
  for (const std::int64_t size : {1, 2, 3, 4, 5, 7, 16, 17, 100, 1000, 4096, 4097}) {
    const RandomPermutation permutation(size, 5);
    std::vector<bool> seen(size);
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int64_t value = permutation(i);
      ASSERT_GE(value, 0);
      ASSERT_LT(value, size);
      ASSERT_FALSE(seen[value]) << size;
      seen[value] = true;
    }
  }
}

TEST(RandomPermutationTest, ScattersNeighboursOverHugeTables) {
  constexpr std::int64_t kSize = std::int64_t{1} << 40;
  const RandomPermutation permutation(kSize, 5);
  int per_eighth[8] = {};
  for (int i = 0; i < 8000; ++i) ++per_eighth[permutation(i) / (kSize / 8)];
  for (const int count : per_eighth) EXPECT_NEAR(count, 1000, 150);
}

TEST(RandomPermutationTest, SeedsDiffer) {
  const RandomPermutation a(1000, 1), b(1000, 2);
  int same = 0;
  for (int i = 0; i < 1000; ++i) same += a(i) == b(i);
  EXPECT_LT(same, 20);
}

// Over many seeds, where one thing goes says nothing about where another one goes, and neither does
// where they come from: every pair of eighths is met as often as it is in random orders.
TEST(RandomPermutationTest, PairsAreIndependentInBothDirections) {
  constexpr int kSeeds = 25'600;
  for (const std::int64_t size : {64, 100, 256}) {
    const auto eighth = [&](std::int64_t i) { return i * 8 / size; };
    double width[8] = {};
    for (std::int64_t i = 0; i < size; ++i) width[eighth(i)] += 1;
    for (const std::int64_t distance : {std::int64_t{1}, std::int64_t{3}, size / 2}) {
      const std::int64_t one = 7, other = 7 + distance;
      double to[8][8] = {}, from[8][8] = {};
      for (int seed = 0; seed < kSeeds; ++seed) {
        const RandomPermutation permutation(size, SplitMix(seed));
        to[eighth(permutation(one))][eighth(permutation(other))] += 1;
        if (size > 100) continue;
        std::int64_t from_one = 0, from_other = 0;
        for (std::int64_t i = 0; i < size; ++i) {
          const std::int64_t value = permutation(i);
          if (value == one) from_one = i;
          if (value == other) from_other = i;
        }
        from[eighth(from_one)][eighth(from_other)] += 1;
      }
      const auto chi_squared = [&](const double(&pairs)[8][8]) {
        double sum = 0;
        for (int a = 0; a < 8; ++a) {
          for (int b = 0; b < 8; ++b) {
            const double expected = kSeeds * width[a] * (width[b] - (a == b ? 1 : 0)) /
                                    static_cast<double>(size * (size - 1));
            sum += (pairs[a][b] - expected) * (pairs[a][b] - expected) / expected;
          }
        }
        return sum;
      };
      const double limit = 63 + 4 * std::sqrt(2 * 63);
      EXPECT_LT(chi_squared(to), limit) << size << " " << distance;
      if (size > 100) continue;
      EXPECT_LT(chi_squared(from), limit) << size << " " << distance;
    }
  }
}

}  // namespace
}  // namespace neuroshard
