#include "common/base/hash.h"

#include <gtest/gtest.h>

#include <bit>

namespace neuroshard {
namespace {

// The first numbers of SplitMix64 from seed 0 (java.util.SplittableRandom).
TEST(MixBitsTest, IsTheFinaliserOfSplitMix64) {
  EXPECT_EQ(MixBits(kGoldenGamma), 0xE220A8397B1DCDAFU);
  EXPECT_EQ(MixBits(2 * kGoldenGamma), 0x6E789E6AA1B965F4U);
  EXPECT_EQ(MixBits(3 * kGoldenGamma), 0x06C45D188009454FU);
}

TEST(MixBitsTest, AnyBitChangesAboutHalfOfTheResult) {
  for (int bit = 0; bit < 64; ++bit) {
    int changed = 0;
    for (std::uint64_t i = 1; i <= 100; ++i) {
      changed += std::popcount(MixBits(i) ^ MixBits(i ^ (std::uint64_t{1} << bit)));
    }
    EXPECT_NEAR(changed / 100.0, 32, 3) << bit;
  }
}

// Of the authors' list (draft-eastlake-fnv).
TEST(Fnv1aTest, IsTheAuthors) {
  EXPECT_EQ(Fnv1a(""), 0xCBF29CE484222325U);
  EXPECT_EQ(Fnv1a("a"), 0xAF63DC4C8601EC8CU);
  EXPECT_EQ(Fnv1a("foobar"), 0x85944171F73967E8U);
}

}  // namespace
}  // namespace neuroshard
