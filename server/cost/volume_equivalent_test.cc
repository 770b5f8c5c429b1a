#include "server/cost/volume_equivalent.h"

#include <gtest/gtest.h>

namespace neuroshard {
namespace {

PricingConditions EightRanks() {
  PricingConditions conditions;
  conditions.num_ranks = 8;
  conditions.global_batch_size = 1000;
  return conditions;
}

ShardFeatures Shard(ShardingType type, std::int64_t rows) {
  ShardFeatures shard;
  shard.rows = rows;
  shard.cols = 16;
  shard.table_rows = 4000;
  shard.layout.type = type;
  shard.pooling_factor = 20;
  return shard;
}

TEST(VolumeEquivalentTest, PooledVectorsCountTheirColumns) {
  const CommLoad columns{16, 16, {.whole_rows = true}};
  const CommLoad cut{16, 16, {.cut_rows = true}};
  EXPECT_EQ(VolumeEquivalent(EightRanks(), Shard(ShardingType::kTableWise, 4000)), columns);
  EXPECT_EQ(VolumeEquivalent(EightRanks(), Shard(ShardingType::kColumnWise, 4000)), columns);
  EXPECT_EQ(VolumeEquivalent(EightRanks(), Shard(ShardingType::kRowWise, 500)), cut);
}

TEST(VolumeEquivalentTest, AReplicaSendsItsDenseGradientTwice) {
  const CommLoad load = VolumeEquivalent(EightRanks(), Shard(ShardingType::kDataParallel, 4000));
  EXPECT_EQ(load.forward, 0);
  EXPECT_EQ(load.backward, 2 * 4000 * 16 / 1000);
  EXPECT_EQ(load.kinds, (ShardKinds{.replicas = true}));
}

TEST(VolumeEquivalentTest, IdsGoWhereTheirRowsAre) {
  EXPECT_EQ(ShardPoolingFactor(EightRanks(), Shard(ShardingType::kColumnWise, 4000)), 20);
  EXPECT_EQ(ShardPoolingFactor(EightRanks(), Shard(ShardingType::kRowWise, 1000)), 5);
  EXPECT_EQ(ShardPoolingFactor(EightRanks(), Shard(ShardingType::kRowWise, 0)), 0);
  EXPECT_EQ(ShardPoolingFactor(EightRanks(), Shard(ShardingType::kDataParallel, 4000)), 2.5);
}

}  // namespace
}  // namespace neuroshard
