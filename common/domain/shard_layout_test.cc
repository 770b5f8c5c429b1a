#include "common/domain/shard_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace neuroshard {
namespace {

using ::testing::ElementsAre;

std::vector<std::int64_t> Sizes(const std::vector<Block>& blocks) {
  std::vector<std::int64_t> sizes;
  std::int64_t next = 0;
  for (const Block& block : blocks) {
    EXPECT_EQ(block.offset, next);
    next += block.size;
    sizes.push_back(block.size);
  }
  return sizes;
}

TEST(ShardLayoutTest, RowBlocksAreTorchRecs) {
  EXPECT_THAT(Sizes(CeilBlocks(10, 4)), ElementsAre(3, 3, 3, 1));
  EXPECT_THAT(Sizes(CeilBlocks(5, 4)), ElementsAre(2, 2, 1, 0));
  EXPECT_THAT(Sizes(CeilBlocks(110, 8)), ElementsAre(14, 14, 14, 14, 14, 14, 14, 12));
  EXPECT_THAT(Sizes(CeilBlocks(130, 8)), ElementsAre(17, 17, 17, 17, 17, 17, 17, 11));
  EXPECT_THAT(Sizes(CeilBlocks(1, 3)), ElementsAre(1, 0, 0));
}

// TorchRec 1.9.2's example: 10 rows, 4 ranks, 5 buckets.
TEST(ShardLayoutTest, BucketsAreNotCut) {
  EXPECT_THAT(Sizes(RowWiseBlocks(10, 4, {.multiple = 2})), ElementsAre(4, 2, 2, 2));
  EXPECT_THAT(Sizes(RowWiseBlocks(12, 3, {.multiple = 2})), ElementsAre(4, 4, 4));
  EXPECT_THAT(Sizes(RowWiseBlocks(10, 4, {.multiple = 1})), ElementsAre(3, 3, 2, 2));
  EXPECT_THAT(Sizes(RowWiseBlocks(10, 4, {})), ElementsAre(3, 3, 3, 1));
}

TEST(ShardLayoutTest, EvenBlocksAreHugeCtrs) {
  EXPECT_THAT(Sizes(EvenBlocks(7, 4)), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(Sizes(EvenBlocks(8, 4)), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(Sizes(EvenBlocks(2, 3)), ElementsAre(1, 1, 0));
}

TEST(ShardLayoutTest, ColumnBlocksAreTorchRecs) {
  EXPECT_THAT(Sizes(WidthBlocks(100, 40)), ElementsAre(40, 40, 20));
  EXPECT_EQ(TorchRecColumnWidth(256, 128), 128);
  EXPECT_EQ(TorchRecColumnWidth(128, 128), 128);  // 128 columns and fewer stay whole
  EXPECT_EQ(TorchRecColumnWidth(64, 128), 64);
  EXPECT_EQ(TorchRecColumnWidth(80, 32), 40);
  EXPECT_EQ(TorchRecColumnWidth(80, 20), 20);
  EXPECT_EQ(TorchRecColumnWidth(60, 20), 20);
  EXPECT_EQ(TorchRecColumnWidth(62, 4), 62);  // no divisor is a multiple of 4
}

TEST(ShardLayoutTest, APlansRowShardsAreThoseOfOneColumnBlock) {
  TablePlan plan{.name = "t",
                 .module = "",
                 .sharding_type = ShardingType::kGridShard,
                 .compute_kernel = ComputeKernel::kFused,
                 .shards = {{0, 5, 0, 8, 0}, {5, 5, 0, 8, 1}, {0, 5, 8, 8, 2}, {5, 5, 8, 8, 3}}};
  EXPECT_EQ(LayoutOf(plan).row_shards, 2);
  plan.sharding_type = ShardingType::kColumnWise;
  EXPECT_EQ(LayoutOf(plan).row_shards, 1);
  plan.shards.clear();
  EXPECT_EQ(LayoutOf(plan).row_shards, 1);
}

}  // namespace
}  // namespace neuroshard
