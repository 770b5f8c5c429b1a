#include "common/domain/shard_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "common/base/random.h"

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

RowCut InProportionTo(std::vector<std::int64_t> weights, std::int64_t multiple = 0) {
  return {.multiple = multiple,
          .proportion = RowProportion::kMemory,
          .weights = std::make_shared<const std::vector<std::int64_t>>(std::move(weights))};
}

TEST(ShardLayoutTest, RowsInProportionAreRoundedByLargestRemainders) {
  EXPECT_THAT(Sizes(RowWiseBlocks(10, 3, InProportionTo({2, 2, 1}))), ElementsAre(4, 4, 2));
  EXPECT_THAT(Sizes(RowWiseBlocks(9, 3, InProportionTo({2, 2, 1}))), ElementsAre(4, 3, 2));
  EXPECT_THAT(Sizes(RowWiseBlocks(100, 4, InProportionTo({80, 40, 80, 40}))),
              ElementsAre(33, 17, 33, 17));
  EXPECT_THAT(Sizes(RowWiseBlocks(3, 4, InProportionTo({9, 1, 9, 9}))), ElementsAre(1, 0, 1, 1));
  EXPECT_THAT(Sizes(RowWiseBlocks(7, 3, InProportionTo({0, 5, 0}))), ElementsAre(0, 7, 0));
  EXPECT_THAT(Sizes(RowWiseBlocks(5, 3, InProportionTo({0, 0, 0}))), ElementsAre(2, 2, 1));
  EXPECT_THAT(Sizes(RowWiseBlocks(12, 3, InProportionTo({2, 1, 1}, 2))), ElementsAre(6, 4, 2));
}

// Against quotas in the exact arithmetic of small numbers, and with weights that overflow it.
TEST(ShardLayoutTest, BlocksInProportionTileTheRowsWithinOneOfTheirQuotas) {
  Random random(7);
  for (int round = 0; round < 2000; ++round) {
    const std::int64_t unit = random.Below(2) == 0 ? 1 : std::int64_t{1} << 50;
    std::vector<std::int64_t> weights(static_cast<std::size_t>(random.Between(1, 9)));
    for (std::int64_t& weight : weights) weight = unit * random.Between(0, 4);
    if (std::accumulate(weights.begin(), weights.end(), std::int64_t{0}) == 0) weights[0] = unit;
    const std::int64_t multiple = random.Between(1, 5);
    const std::int64_t buckets = random.Between(1, 60);
    const std::vector<std::int64_t> sizes = Sizes(RowWiseBlocks(
        buckets * multiple, static_cast<int>(weights.size()), InProportionTo(weights, multiple)));
    const std::int64_t sum =
        std::accumulate(weights.begin(), weights.end(), std::int64_t{0}) / unit;
    std::int64_t rows = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::int64_t weight = weights[i] / unit;
      EXPECT_EQ(sizes[i] % multiple, 0);
      EXPECT_LT(std::abs(sizes[i] / multiple * sum - buckets * weight), sum);
      EXPECT_TRUE(weight > 0 || sizes[i] == 0);
      for (std::size_t j = 0; j < i; ++j) {
        if (weights[j] != weights[i]) continue;
        EXPECT_GE(sizes[j], sizes[i]);
        EXPECT_LE(sizes[j] - sizes[i], multiple);
      }
      rows += sizes[i];
    }
    EXPECT_EQ(rows, buckets * multiple);
    // Who got one more than the quota had no smaller remainder than who did not.
    const auto remainder = [&](std::size_t i) { return buckets * (weights[i] / unit) % sum; };
    const auto rounded_up = [&](std::size_t i) {
      return sizes[i] / multiple > buckets * (weights[i] / unit) / sum;
    };
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      for (std::size_t j = 0; j < sizes.size(); ++j) {
        EXPECT_TRUE(!rounded_up(i) || rounded_up(j) || remainder(i) >= remainder(j));
      }
    }
  }
}

TEST(ShardLayoutTest, EqualWeightsGiveEvenBlocks) {
  for (int ranks = 1; ranks < 8; ++ranks) {
    const RowCut cut =
        InProportionTo(std::vector<std::int64_t>(static_cast<std::size_t>(ranks), 80));
    for (std::int64_t rows = 1; rows < 30; ++rows) {
      EXPECT_EQ(RowWiseBlocks(rows, ranks, cut), EvenBlocks(rows, ranks));
    }
  }
}

TEST(ShardLayoutTest, ABlockInProportionCountsByItsRows) {
  EXPECT_EQ(EqualBlocks({.type = ShardingType::kRowWise, .row_shards = 3}, 5, 100), 3);
  const ShardLayout layout{.type = ShardingType::kRowWise, .row_shards = 3, .in_proportion = true};
  EXPECT_EQ(EqualBlocks(layout, 50, 100), 2);
  EXPECT_EQ(7 / EqualBlocks(layout, 0, 100), 0);
  const TablePlan plan{.name = "t",
                       .module = "",
                       .sharding_type = ShardingType::kRowWise,
                       .compute_kernel = ComputeKernel::kFused,
                       .shards = {{0, 2, 0, 8, 0}, {2, 1, 0, 8, 1}}};
  EXPECT_TRUE(LayoutOf(plan, InProportionTo({2, 1})).in_proportion);
  EXPECT_FALSE(LayoutOf(plan, {.multiple = 1}).in_proportion);
  TablePlan whole = plan;
  whole.sharding_type = ShardingType::kTableWise;
  EXPECT_FALSE(LayoutOf(whole, InProportionTo({2, 1})).in_proportion);
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
