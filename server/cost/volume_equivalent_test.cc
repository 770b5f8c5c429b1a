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

TEST(VolumeEquivalentTest, UnpooledTablesExchangeAVectorForEachId) {
  ShardFeatures sequence = Shard(ShardingType::kTableWise, 4000);
  sequence.unpooled = true;
  const CommLoad all{16 * 20, 16 * 20, {.whole_rows = true}};
  EXPECT_EQ(VolumeEquivalent(EightRanks(), sequence), all);
  // Holders of rows send the vectors of their own ids, which nobody adds up.
  sequence.layout.type = ShardingType::kRowWise;
  sequence.rows = 500;
  const CommLoad part{16 * 20 / 8, 16 * 20 / 8, {.whole_rows = true}};
  EXPECT_EQ(VolumeEquivalent(EightRanks(), sequence), part);
}

TEST(VolumeEquivalentTest, StatedBagsCountOneVectorEach) {
  ShardFeatures bags = Shard(ShardingType::kRowWise, 500);
  bags.states_bags = true;
  bags.pooling_factor = 60;
  bags.bags = {3, 0};
  const CommLoad three{48, 48, {.cut_rows = true}};
  EXPECT_EQ(VolumeEquivalent(EightRanks(), bags), three);
  EXPECT_EQ(LookupsOf(EightRanks(), bags).ids, 60 * 1000 / 8);
  bags.bags = {0, 250};  // of the batch: a quarter of the samples has a bag
  const CommLoad quarter{4, 4, {.cut_rows = true}};
  EXPECT_EQ(VolumeEquivalent(EightRanks(), bags), quarter);
}

TEST(VolumeEquivalentTest, BytesAreThoseOfTheWire) {
  ShardFeatures shard = Shard(ShardingType::kColumnWise, 4000);
  shard.output_dtype = DataType::kFp16;
  EXPECT_EQ(VolumeEquivalent(EightRanks(), shard).forward, 8);
  EXPECT_EQ(VolumeEquivalent(EightRanks(), shard).backward, 8);
  PricingConditions quantised = EightRanks();
  quantised.quantized_comms = {DataType::kInt8, DataType::kFp32};
  EXPECT_EQ(VolumeEquivalent(quantised, shard).forward, 4);
  EXPECT_EQ(VolumeEquivalent(quantised, shard).backward, 16);
  // The dense gradient of replicas is not quantised.
  EXPECT_EQ(VolumeEquivalent(quantised, Shard(ShardingType::kDataParallel, 4000)),
            VolumeEquivalent(EightRanks(), Shard(ShardingType::kDataParallel, 4000)));
}

TEST(VolumeEquivalentTest, IdsGoWhereTheirRowsAre) {
  EXPECT_EQ(ShardPoolingFactor(EightRanks(), Shard(ShardingType::kColumnWise, 4000)), 20);
  EXPECT_EQ(ShardPoolingFactor(EightRanks(), Shard(ShardingType::kRowWise, 1000)), 5);
  EXPECT_EQ(ShardPoolingFactor(EightRanks(), Shard(ShardingType::kRowWise, 0)), 0);
  EXPECT_EQ(ShardPoolingFactor(EightRanks(), Shard(ShardingType::kDataParallel, 4000)), 2.5);
}

}  // namespace
}  // namespace neuroshard
