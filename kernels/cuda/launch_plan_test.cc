#include "kernels/cuda/launch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/base/random.h"
#include "kernels/cuda/cached_rows.h"
#include "kernels/cuda/row_keys.h"
#include "kernels/cuda/table_blocks.h"
#include "kernels/cuda/testing/traffic.h"

namespace neuroshard::cuda {
namespace {

using ::testing::ElementsAre;

TEST(TableBlocksTest, EveryBlockHasOneTableAndTablesWithoutBlocksNone) {
  Random random(1);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<std::int64_t> blocks(random.Between(1, 20));
    for (auto& count : blocks) count = random.Below(3) == 0 ? 0 : random.Between(1, 5);
    const auto first = FirstBlocks(blocks).value();
    std::int64_t block = 0;
    for (std::size_t t = 0; t < blocks.size(); ++t) {
      for (std::int64_t own = 0; own < blocks[t]; ++own, ++block) {
        const TableBlock found = FindTable(first.data(), static_cast<int>(blocks.size()), block);
        ASSERT_EQ(found.table, static_cast<int>(t));
        ASSERT_EQ(found.block, own);
      }
    }
    EXPECT_EQ(first.back(), block);
  }
}

TEST(TableBlocksTest, MoreBlocksThanALaunchHasAreRefused) {
  EXPECT_EQ(FirstBlocks({1, std::numeric_limits<std::int32_t>::max()}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(LaunchPlanTest, BlocksCoverTheWork) {
  for (const std::int32_t vectors : {1, 3, 8, 24, 32, 33, 64, 255, 256, 257, 512}) {
    for (const std::int64_t count : {1, 31, 32, 33, 1000, 4096}) {
      const std::int64_t pools = BlocksOf(PoolTable{.vectors = vectors, .bags = count});
      EXPECT_GE(pools * BagsPerBlock(vectors), count);
      EXPECT_LT((pools - 1) * BagsPerBlock(vectors), count);
      EXPECT_LE(BagsPerBlock(vectors) * PoolLanes(vectors), kThreads);
      const std::int64_t groups = kThreads / UpdateLanes(vectors);
      const std::int64_t updates = BlocksOf(UpdateTable{.vectors = vectors, .entries = count});
      EXPECT_GE(updates * groups * kChunk, count);
      EXPECT_LT((updates - 1) * groups * kChunk, count);
      EXPECT_GE(CacheBlocks(count) * kCacheChunksPerBlock * kCacheChunk, count);
      EXPECT_EQ(kWarp % UpdateLanes(vectors), 0);
      EXPECT_GE(UpdateLanes(vectors) * VectorsPerLane(vectors), vectors);
    }
  }
}

TEST(LaunchPlanTest, LevelsEndInOneChunk) {
  EXPECT_THAT(LevelEntries(0), ElementsAre());
  EXPECT_THAT(LevelEntries(1), ElementsAre(1));
  EXPECT_THAT(LevelEntries(32), ElementsAre(32));
  EXPECT_THAT(LevelEntries(33), ElementsAre(33, 4));
  EXPECT_THAT(LevelEntries(1'000'000), ElementsAre(1'000'000, 62'500, 3908, 246, 16));
  EXPECT_EQ(LevelEntries(10'000'000).size(), 6U);
}

TEST(LaunchPlanTest, LongBagsAreCutWithoutGaps) {
  const LongBags none = FindLongBags({0, 1024, 1024, 2048});
  EXPECT_TRUE(none.bags.empty());
  const LongBags bags = FindLongBags({0, 5, 1030, 1030, 3030});
  EXPECT_THAT(bags.bags, ElementsAre(1, 3));
  EXPECT_THAT(bags.first_segment, ElementsAre(0, 3, 7));
  EXPECT_THAT(bags.begins, ElementsAre(5, 517, 1029, 1030, 1542, 2054, 2566));
  EXPECT_THAT(bags.ends, ElementsAre(517, 1029, 1030, 1542, 2054, 2566, 3030));
}

TEST(LaunchPlanTest, PlacesAreAlignedAndNeverOverflow) {
  MemoryLayout layout;
  EXPECT_EQ(layout.Take(3, 4), 0);
  EXPECT_EQ(layout.Take(0, 4), 256);
  EXPECT_EQ(layout.Take(257, 1), 256);
  EXPECT_EQ(layout.bytes(), 768);
  for (int i = 0; i < 100; ++i) layout.Take(std::int64_t{1} << 60, 4096);
  EXPECT_GT(layout.bytes(), std::int64_t{1} << 60);
}

TEST(TrafficTest, CountsByHand) {
  TableTraffic t{.batch_size = 10, .ids = 100, .distinct_rows = 60, .cols = 128};
  EXPECT_EQ(NominalForwardBytes(t), 100 * 512 + 100 * 8 + 10 * 512 + 10 * 8);
  EXPECT_EQ(NominalForwardBytes(t) - DistinctForwardBytes(t), 40 * 512);
  EXPECT_EQ(NominalBackwardBytes(t), 100 * 520 + 60 * 1024);
  t.state_bytes = 4;
  EXPECT_EQ(DistinctBackwardBytes(t), 10 * 512 + 100 * 8 + 60 * (1024 + 64));
  EXPECT_EQ(SortBytes(t, 24), 100 * (8 + 8 + 4 + 3 * 16 + 8));
  EXPECT_EQ(SortBytes(t, 25) - SortBytes(t, 24), 100 * 16);
}

TEST(RowKeysTest, BagsAreFoundAcrossEmptyOnes) {
  const std::vector<std::int64_t> offsets = {0, 0, 2, 2, 2, 5, 6, 6};
  const std::vector<std::int64_t> expected = {1, 1, 4, 4, 4, 5};
  for (std::int64_t i = 0; i < 6; ++i) EXPECT_EQ(BagOf(offsets.data(), 0, 6, i), expected[i]);
}

// Every 16-bit pattern, and what lies between two neighbours.
TEST(NumbersTest, NarrowTypesRoundToNearestEven) {
  for (const bool half : {true, false}) {
    const auto widen = half ? Fp16ToFloat : neuroshard::Bf16ToFloat;
    const auto narrow = half ? FloatToFp16 : neuroshard::FloatToBf16;
    const std::uint16_t infinity = half ? 0x7c00 : 0x7f80;
    for (std::uint16_t bits = 0; bits < infinity; ++bits) {
      const float value = widen(bits);
      ASSERT_EQ(narrow(value), bits);
      ASSERT_EQ(narrow(-value), bits | 0x8000);
      const auto above = static_cast<std::uint16_t>(bits + 1);
      if (above == infinity) continue;
      const double next = widen(above), middle = (static_cast<double>(value) + next) / 2;
      const float halfway = static_cast<float>(middle);  // exact
      ASSERT_EQ(narrow(halfway), bits % 2 == 0 ? bits : above);
      ASSERT_EQ(narrow(std::nextafter(halfway, 0.0F)), bits);
      ASSERT_EQ(narrow(std::nextafter(halfway, std::numeric_limits<float>::infinity())), above);
    }
    EXPECT_EQ(narrow(std::numeric_limits<float>::infinity()), infinity);
    EXPECT_TRUE(std::isnan(widen(narrow(std::numeric_limits<float>::quiet_NaN()))));
  }
  EXPECT_EQ(Fp16ToFloat(0x3c00), 1.0F);
  EXPECT_EQ(Fp16ToFloat(0x0001), 0x1p-24F);
  EXPECT_EQ(neuroshard::Bf16ToFloat(0x3f80), 1.0F);
  EXPECT_EQ(FloatToFp16(1e6F), 0x7c00);
}

}  // namespace
}  // namespace neuroshard::cuda
