#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "server/cost/fabric/fabric_cost_model.h"

namespace neuroshard {
namespace {

const Fabric kCommFabric{"made up", {4, 300e9}, {10, 25e9}};
constexpr std::int64_t kBatch = 1 << 16;
// Bytes of a rank with one column, whole batch.
constexpr double kColumnBytes = 4.0 * kBatch;

ShardFeatures CommShard(ShardingType type) {
  ShardFeatures shard;
  shard.rows = 1000;
  shard.cols = 128;
  shard.table_rows = 1000;
  shard.layout.type = type;
  return shard;
}

// What every rank pays backward when each has one such shard.
float CostOnEveryRank(const FabricComm& comm, int ranks, ShardingType type) {
  const std::vector<float> loads(ranks, comm.Load(CommShard(type)).backward);
  std::vector<float> ms(ranks);
  comm.BackwardCosts(loads, ms);
  return *std::max_element(ms.begin(), ms.end());
}

TEST(FabricCommTest, AnAllToAllMovesTheBatchOfEveryColumn) {
  const FabricComm comm(kCommFabric, {{0, 8}}, kBatch);
  EXPECT_EQ(comm.Load(CommShard(ShardingType::kColumnWise)), (CommLoad{128, 128}));
  EXPECT_EQ(comm.Load(CommShard(ShardingType::kRowWiseSubset)), (CommLoad{128, 128}));
  EXPECT_NEAR(CostOnEveryRank(comm, 8, ShardingType::kTableWise),
              0.012 + 128 * kColumnBytes * 7 / 8 / 300e6, 1e-5);
}

TEST(FabricCommTest, OtherCollectivesCostWhatTheyTake) {
  const std::vector<HostRanks> hosts = {{0, 8}, {8, 8}};
  const FabricComm comm(kCommFabric, hosts, kBatch);
  const FabricCollectives collectives(kCommFabric, hosts);
  const double bytes = 128 * kColumnBytes;
  // But for the latency, which shards of one rank share.
  EXPECT_NEAR(CostOnEveryRank(comm, 16, ShardingType::kRowWise) / collectives.ReduceScatter(bytes),
              1, 0.05);
  EXPECT_NEAR(
      CostOnEveryRank(comm, 16, ShardingType::kTableRowWise) / collectives.HostReduceScatter(bytes),
      1, 0.05);
  // A table with as many rows as the batch has samples.
  ShardFeatures replica = CommShard(ShardingType::kDataParallel);
  replica.rows = kBatch;
  const CommLoad load = comm.Load(replica);
  EXPECT_EQ(load.forward, 0);
  std::vector<float> ms(16);
  comm.BackwardCosts(std::vector<float>(16, load.backward), ms);
  EXPECT_NEAR(ms[0] / collectives.AllReduce(bytes), 1, 0.05);
}

TEST(FabricCommTest, LoadsAreTheBytesThatAreExchanged) {
  const FabricComm comm(kCommFabric, {{0, 8}}, kBatch, 1, {DataType::kBf16, std::nullopt});
  EXPECT_EQ(comm.Load(CommShard(ShardingType::kColumnWise)), (CommLoad{64, 128}));
  ShardFeatures sequence = CommShard(ShardingType::kRowWise);
  sequence.unpooled = true;
  sequence.pooling_factor = 8;
  sequence.rows /= 8;
  EXPECT_EQ(comm.Load(sequence), (CommLoad{64, 128}));
}

TEST(FabricCommTest, EachPlacementIsPricedByItself) {
  const FabricComm comm(kCommFabric, {{0, 2}, {2, 1}}, kBatch);
  const std::vector<float> loads = {64, 0, 16, 8, 8, 8};
  const std::vector<float> offsets = {0, 3, 1, 0, 0, 0};
  std::vector<float> both(6), first(3), second(3), backward(3);
  comm.ForwardCosts(loads, offsets, both);
  comm.ForwardCosts(std::span(loads).first(3), std::span(offsets).first(3), first);
  comm.ForwardCosts(std::span(loads).last(3), std::span(offsets).last(3), second);
  comm.BackwardCosts(std::span(loads).first(3), backward);
  first.insert(first.end(), second.begin(), second.end());
  EXPECT_EQ(both, first);
  for (int r = 0; r < 3; ++r) EXPECT_FLOAT_EQ(both[r], backward[r] + 3 - offsets[r]);
}

TEST(FabricCommTest, CostsStayFinite) {
  const FabricComm comm(kCommFabric, {{0, 2}}, std::int64_t{1} << 40);
  std::vector<float> ms(2);
  comm.BackwardCosts(std::vector<float>{3e38f, 0}, ms);
  EXPECT_EQ(ms[0], std::numeric_limits<float>::max());
}

}  // namespace
}  // namespace neuroshard
