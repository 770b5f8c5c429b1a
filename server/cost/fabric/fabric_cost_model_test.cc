#include "server/cost/fabric/fabric_cost_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_cost_model.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::FakeCostModel;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

const Fabric kModelFabric{"made up", {4, 300e9}, {10, 25e9}};

PricingConditions TwoHosts() {
  PricingConditions conditions;
  conditions.num_ranks = 4;
  conditions.ranks_per_host = 3;
  conditions.hosts = {{0, 3}, {3, 1}};
  return conditions;
}

ShardFeatures WideShard(ShardingType type) {
  ShardFeatures shard;
  shard.rows = shard.table_rows = 1000;
  shard.cols = 64;
  shard.layout.type = type;
  return shard;
}

TEST(FabricCostModelTest, ComputeIsTheModelsAndCommunicationTheFabrics) {
  const auto compute = std::make_shared<const FakeCostModel>();
  const BoundCostModel model = MakeFabricCostModel(compute, kModelFabric)->Bind(TwoHosts()).value();
  const std::vector<ShardFeatures> shards = {WideShard(ShardingType::kTableWise),
                                             WideShard(ShardingType::kRowWise)};
  std::vector<float> phi(2), expected_phi(2);
  std::vector<CommLoad> loads(2), ignored(2);
  model.Represent(shards, phi, loads);
  compute->Bind(TwoHosts())->Represent(shards, expected_phi, ignored);
  EXPECT_EQ(phi, expected_phi);

  const FabricComm comm(kModelFabric, TwoHosts().hosts, TwoHosts().global_batch_size);
  EXPECT_EQ(loads[1], comm.Load(shards[1]));
  const std::vector<float> sums = {64, 0, 32, 8};
  const std::vector<float> offsets = {0, 1, 2, 0};
  std::vector<float> cost(4), expected(4);
  model.comm().ForwardCosts(sums, offsets, cost);
  comm.ForwardCosts(sums, offsets, expected);
  EXPECT_EQ(cost, expected);
  model.comm().BackwardCosts(sums, cost);
  comm.BackwardCosts(sums, expected);
  EXPECT_EQ(cost, expected);
}

TEST(FabricCostModelTest, PodsHaveAHostsLinks) {
  PricingConditions conditions = TwoHosts();
  conditions.pod_size = 2;
  const auto compute = std::make_shared<const FakeCostModel>();
  const BoundCostModel model = MakeFabricCostModel(compute, kModelFabric)->Bind(conditions).value();
  const FabricComm one_host(kModelFabric, {{0, 4}}, conditions.global_batch_size);
  const std::vector<float> sums = {64, 0, 32, 8};
  std::vector<float> cost(4), expected(4);
  model.comm().BackwardCosts(sums, cost);
  one_host.BackwardCosts(sums, expected);
  EXPECT_EQ(cost, expected);
}

TEST(FabricCostModelTest, SaysThatCommunicationIsNotMeasured) {
  CostModelInfo info;
  info.name = "gpu";
  info.coverage.num_devices = {1, 2, 4};
  info.typical_errors = {{"compute", 0.1}, {"forward_comm", 0.2}};
  const auto model =
      MakeFabricCostModel(std::make_shared<const FakeCostModel>(std::move(info)), kModelFabric);
  EXPECT_EQ(model->info().name, "gpu");
  EXPECT_EQ(model->info().coverage.comm_fabric, "made up");
  EXPECT_TRUE(model->info().coverage.num_devices.empty());
  EXPECT_EQ(model->info().typical_errors.size(), 1U);
  // Searches try what the formulas try: all-to-alls are not measured either.
  EXPECT_THAT(
      model->Bind({.num_ranks = 2})->sharding_types(),
      AllOf(Contains(ShardingType::kTableWise), Contains(ShardingType::kRowWise),
            Contains(ShardingType::kDataParallel), Not(Contains(ShardingType::kRowWiseSubset))));
  EXPECT_TRUE(model->Bind({.num_ranks = 2})->comm().Intervals(std::vector<RankComm>(2)).empty());
}

TEST(FabricCostModelTest, TakesWhatComputeTakesOnAnyNumberOfRanks) {
  CostModelInfo info;
  info.coverage.num_devices = {1};  // the fake then refuses every other count
  const auto model =
      MakeFabricCostModel(std::make_shared<const FakeCostModel>(std::move(info)), kModelFabric);
  EXPECT_TRUE(model->Bind(TwoHosts()).ok());
  PricingConditions many = TwoHosts();
  many.num_ranks = 20'000;
  EXPECT_THAT(model->Bind(many).status().ToString(), HasSubstr("up to 16384 devices"));

  std::vector<float> cost = {7};
  model->Bind({.num_ranks = 1})
      ->comm()
      .ForwardCosts(std::vector<float>{64}, std::vector<float>{0}, cost);
  EXPECT_EQ(cost[0], 0);
}

}  // namespace
}  // namespace neuroshard
