#include "server/evaluate/price_plan.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "common/domain/expected_lookups.h"
#include "common/domain/testing/reuse_histograms.h"
#include "server/cost/analytic/analytic_cost_model.h"
#include "server/cost/shard_features.h"
#include "tests/support/concave_cost_model.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::BoundTo;
using ::neuroshard::testing::BoundToRanks;
using ::neuroshard::testing::ConcaveCostModel;
using ::neuroshard::testing::StatusIs;
using ::testing::AllOf;
using ::testing::FloatNear;
using ::testing::HasSubstr;

class PricePlanTest : public ::testing::Test {
 protected:
  PricePlanTest() {
    request_.memory.rule = MemoryRule::kWeightsOnly;
    for (const std::int64_t dim : {16, 32, 8}) {
      Table table;
      table.name = "t" + std::to_string(request_.tables.size());
      table.num_embeddings = 1000 * dim;
      table.embedding_dim = dim;
      table.pooling_factor = 5;
      request_.tables.push_back(table);
    }
    request_.topology.devices = {{0, 1 << 22}, {0, 1 << 22}, {0, 1 << 22}};
    plan_.world_size = 3;
    plan_.local_world_size = 3;
    plan_.tables = {
        {"t0", "", ShardingType::kTableWise, ComputeKernel::kFused, {{0, 16000, 0, 16, 0}}},
        {"t1",
         "",
         ShardingType::kColumnWise,
         ComputeKernel::kFused,
         {{0, 32000, 0, 16, 0}, {0, 32000, 16, 16, 2}}},
        {"t2", "", ShardingType::kTableWise, ComputeKernel::kFused, {{0, 8000, 0, 8, 2}}},
    };
  }

  float Head(std::initializer_list<ShardFeatures> shards) const {
    const std::vector<std::vector<ShardFeatures>> set = {shards};
    return model_.CostsOfSets(set).front().compute.total_ms;
  }

  PlanRequest request_;
  Plan plan_;
  BoundCostModel model_ = BoundToRanks(3, ConcaveCostModel());
};

TEST_F(PricePlanTest, ComputeIsTheHeadOfTheSumAndEmptyRanksAreFree) {
  NS_ASSERT_OK_AND_ASSIGN(const PlanCost cost, PricePlan(request_, plan_, model_));
  const float first = Head({FeaturesOf(request_.tables[0], {}, 16000, 16),
                            FeaturesOf(request_.tables[1], {}, 32000, 16)});
  const float third = Head(
      {FeaturesOf(request_.tables[1], {}, 32000, 16), FeaturesOf(request_.tables[2], {}, 8000, 8)});
  EXPECT_FLOAT_EQ(static_cast<float>(cost.ranks[0].compute_ms), first);
  EXPECT_EQ(cost.ranks[1].compute_ms, 0);
  EXPECT_FLOAT_EQ(static_cast<float>(cost.ranks[2].compute_ms), third);
  EXPECT_FALSE(cost.ranks[0].forward_compute_ms.has_value());
}

TEST_F(PricePlanTest, ExchangesAreTimesThatEveryRankPaysBesideItsBytes) {
  request_.tables[2].module = "other";
  plan_.tables[2].module = "other";
  MeasuredSteps steps = testing::ConcaveSteps();
  const auto price = [&] {
    ModelProperties properties;
    properties.measured_steps = steps;
    return PricePlan(request_, plan_, BoundTo(request_, ConcaveCostModel(0, properties))).value();
  };
  const PlanCost cost = price();
  const ExchangeTimes exchange = steps.rates[0].exchange;
  EXPECT_EQ(cost.exchanges, (std::vector<ExchangeCost>{
                                {"", ShardingType::kTableWise, exchange.whole_rows_ms},
                                {"", ShardingType::kColumnWise, exchange.whole_rows_ms},
                                {"other", ShardingType::kTableWise, exchange.whole_rows_ms}}));
  steps.rates[0].exchange = {};
  const PlanCost without = price();
  for (std::size_t r = 0; r < cost.ranks.size(); ++r) {
    EXPECT_NEAR(cost.ranks[r].forward_comm_ms + cost.ranks[r].backward_comm_ms,
                without.ranks[r].forward_comm_ms + without.ranks[r].backward_comm_ms +
                    3 * exchange.whole_rows_ms,
                1e-5);
  }
  NS_ASSERT_OK_AND_ASSIGN(const PlanCost unpriced, PricePlan(request_, plan_, model_));
  EXPECT_TRUE(unpriced.exchanges.empty());
}

TEST_F(PricePlanTest, ARanksComputeTakesItsSpeedAndAllElseFollows) {
  NS_ASSERT_OK_AND_ASSIGN(const PlanCost alike, PricePlan(request_, plan_, model_));
  request_.topology.devices[0].compute_speed = 2;
  request_.topology.devices[2].compute_speed = 0.5;
  const BoundCostModel mixed = BoundTo(request_, ConcaveCostModel());
  NS_ASSERT_OK_AND_ASSIGN(const PlanCost cost, PricePlan(request_, plan_, mixed));
  EXPECT_FLOAT_EQ(static_cast<float>(cost.ranks[0].compute_ms),
                  static_cast<float>(alike.ranks[0].compute_ms / 2));
  EXPECT_FLOAT_EQ(static_cast<float>(cost.ranks[2].compute_ms),
                  static_cast<float>(alike.ranks[2].compute_ms * 2));
  std::vector<float> compute_ms;
  for (const RankCost& rank : cost.ranks) compute_ms.push_back(static_cast<float>(rank.compute_ms));
  const std::vector<float> dims = {32, 0, 24};
  PlacementPrices prices;
  PricePlacements(mixed, compute_ms, dims, dims, prices);
  EXPECT_EQ(cost.embedding_cost_ms, prices.cost_ms.front());
}

TEST_F(PricePlanTest, CommunicationFollowsDimsAndOffsets) {
  NS_ASSERT_OK_AND_ASSIGN(const PlanCost cost, PricePlan(request_, plan_, model_));
  EXPECT_EQ(cost.ranks[0].dim_sum, 32);
  EXPECT_EQ(cost.ranks[1].dim_sum, 0);
  EXPECT_EQ(cost.ranks[2].dim_sum, 24);
  const std::vector<float> dims = {32, 0, 24};
  std::vector<float> backward(3);
  model_.comm().BackwardCosts(dims, backward);
  std::vector<float> offsets(3);
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_FLOAT_EQ(static_cast<float>(cost.ranks[r].backward_comm_ms), backward[r]);
    offsets[r] = static_cast<float>(cost.ranks[r].compute_ms) + backward[r];
  }
  const float first = *std::min_element(offsets.begin(), offsets.end());
  for (float& offset : offsets) offset -= first;
  std::vector<float> forward(3);
  model_.comm().ForwardCosts(dims, offsets, forward);
  double most = 0;
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_THAT(static_cast<float>(cost.ranks[r].start_offset_ms), FloatNear(offsets[r], 1e-5F));
    EXPECT_THAT(static_cast<float>(cost.ranks[r].forward_comm_ms), FloatNear(forward[r], 1e-5F));
    most = std::max(most, cost.ranks[r].total_ms());
  }
  EXPECT_EQ(cost.ranks[1].start_offset_ms, 0);
  EXPECT_DOUBLE_EQ(cost.embedding_cost_ms, most);
}

TEST_F(PricePlanTest, AStageOfSeveralCollectivesTakesLonger) {
  plan_.tables[0] = {"t0",
                     "",
                     ShardingType::kDataParallel,
                     ComputeKernel::kDense,
                     {{0, 16000, 0, 16, 0}, {0, 16000, 0, 16, 1}, {0, 16000, 0, 16, 2}}};
  NS_ASSERT_OK_AND_ASSIGN(const PlanCost cost, PricePlan(request_, plan_, model_));
  const std::vector<float> backward_loads = {
      16 + 2.0F * 16000 * 16 / 65536, 2.0F * 16000 * 16 / 65536, 24 + 2.0F * 16000 * 16 / 65536};
  std::vector<float> backward_ms(3);
  model_.comm().BackwardCosts(backward_loads, backward_ms);
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_THAT(cost.ranks[r].backward_comm_ms, ::testing::DoubleNear(backward_ms[r] + 0.09, 1e-6));
  }

  plan_.tables[0] = {"t0",
                     "",
                     ShardingType::kRowWise,
                     ComputeKernel::kFused,
                     {{0, 5334, 0, 16, 0}, {5334, 5334, 0, 16, 1}, {10668, 5332, 0, 16, 2}}};
  NS_ASSERT_OK_AND_ASSIGN(const PlanCost cut, PricePlan(request_, plan_, model_));
  model_.comm().BackwardCosts(std::vector<float>{32, 16, 40}, backward_ms);
  EXPECT_THAT(cut.ranks[2].backward_comm_ms, ::testing::DoubleNear(backward_ms[2] + 0.07, 1e-6));
  std::vector<float> offsets_ms;
  for (const RankCost& rank : cut.ranks) {
    offsets_ms.push_back(static_cast<float>(rank.start_offset_ms));
  }
  std::vector<float> forward_ms(3);
  model_.comm().ForwardCosts(std::vector<float>{32, 16, 40}, offsets_ms, forward_ms);
  EXPECT_THAT(cut.ranks[2].forward_comm_ms, ::testing::DoubleNear(forward_ms[2] + 0.06, 1e-6));
}

TEST_F(PricePlanTest, MemoryIsWhatTheShardsTakeAndTheReserve) {
  request_.memory.reserve_fraction = 0.5;
  NS_ASSERT_OK_AND_ASSIGN(const PlanCost cost, PricePlan(request_, plan_, model_));
  EXPECT_EQ(cost.ranks[0].memory.weights[MemoryTier::kDevice], 4 * (16000 * 16 + 32000 * 16));
  EXPECT_EQ(cost.ranks[0].memory.reserve_bytes, 1 << 21);
  EXPECT_EQ(cost.ranks[0].capacity_bytes, 1 << 22);
}

TEST_F(PricePlanTest, ForwardAndBackwardWhereTheModelTellsThemApart) {
  NS_ASSERT_OK_AND_ASSIGN(
      const PlanCost cost,
      PricePlan(request_, plan_, BoundTo(request_, ConcaveCostModel(0, {.splits_compute = true}))));
  for (const RankCost& rank : cost.ranks) {
    ASSERT_TRUE(rank.forward_compute_ms.has_value());
    EXPECT_NEAR(*rank.forward_compute_ms + *rank.backward_compute_ms, rank.compute_ms, 1e-6);
  }
}

TEST_F(PricePlanTest, AnIllegalPlanIsPricedWhereThatMakesSense) {
  plan_.tables.pop_back();
  request_.topology.devices[0].memory_bytes = 1;
  EXPECT_TRUE(PricePlan(request_, plan_, model_).ok());
}

TEST_F(PricePlanTest, BlocksWithoutRowsArePriced) {
  request_.tables[0].num_embeddings = 2;
  plan_.tables[0].sharding_type = ShardingType::kRowWise;
  plan_.tables[0].shards = {{0, 1, 0, 16, 0}, {1, 1, 0, 16, 1}, {2, 0, 0, 16, 2}};
  NS_ASSERT_OK_AND_ASSIGN(const PlanCost cost, PricePlan(request_, plan_, model_));
  EXPECT_EQ(cost.ranks[1].memory.weights[MemoryTier::kDevice], 4 * 16);
  EXPECT_EQ(cost.ranks[2].memory.weights[MemoryTier::kDevice], 4 * (32000 * 16 + 8000 * 8));
  plan_.tables[0].sharding_type = ShardingType::kColumnWise;
  EXPECT_THAT(PricePlan(request_, plan_, model_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("shards[2].rows")));
}

TEST_F(PricePlanTest, WhatCannotBePricedIsNamed) {
  plan_.tables[0].name = "stranger";
  plan_.tables[1].shards[1].cols = 17;
  plan_.tables[2].shards[0].rank = 3;
  EXPECT_THAT(
      PricePlan(request_, plan_, model_),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("plan.tables[0].name"), HasSubstr("plan.tables[1].shards[1].cols"),
                     HasSubstr("plan.tables[2].shards[0].rank"))));
}

TEST_F(PricePlanTest, PlacementsOfABatchDoNotInfluenceEachOther) {
  const std::vector<float> compute = {1, 2, 3, 5, 0, 0};
  const std::vector<float> dims = {10, 20, 30, 60, 0, 0};
  PlacementPrices both;
  PricePlacements(model_, compute, dims, dims, both);
  PlacementPrices second;
  PricePlacements(model_, std::span(compute).subspan(3), std::span(dims).subspan(3),
                  std::span(dims).subspan(3), second);
  ASSERT_EQ(both.cost_ms.size(), 2U);
  EXPECT_EQ(both.cost_ms[1], second.cost_ms[0]);
  PricePlacements(model_, {}, {}, {}, both);
  EXPECT_TRUE(both.cost_ms.empty());
}

// Of compute and of the distribution of ids alike, and of the distribution once.
TEST_F(PricePlanTest, HotRowBlocksCostWhatTheTableWouldWithSoManyMoreIds) {
  request_.pipeline_type = PipelineType::kNone;
  Table& table = request_.tables[0];
  table.reuse_histogram = ZipfReuseHistogram(16'000, 5 * request_.global_batch_size, 1);
  plan_.tables[0].sharding_type = ShardingType::kRowWise;
  plan_.tables[0].shards = {{0, 5334, 0, 16, 0}, {5334, 5334, 0, 16, 1}, {10'668, 5332, 0, 16, 2}};
  NS_ASSERT_OK_AND_ASSIGN(const auto analytic,
                          MakeAnalyticCostModel()->Bind(ConditionsOf(request_)));
  const auto price = [&] { return *PricePlan(request_, plan_, analytic); };
  const PlanCost even = price();
  table.hot_row_blocks = true;
  const PlanCost hot = price();
  const HottestRowBlock block = ExpectedHottestRowBlock(
      table.reuse_histogram, 16'000, 5.0 * static_cast<double>(request_.global_batch_size), 3);
  table.hot_row_blocks = false;
  table.pooling_factor *= block.ids_share * 3;
  table.reuse_histogram = block.reuse;
  EXPECT_GT(block.ids_share * 3, 1.1);
  EXPECT_EQ(hot, price());
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_GT(hot.ranks[rank].compute_ms, even.ranks[rank].compute_ms);
  }
}

TEST_F(PricePlanTest, DistributionOfIdsIsAStageOfItsOwn) {
  NS_ASSERT_OK_AND_ASSIGN(const PlanCost unstated, PricePlan(request_, plan_, model_));
  request_.pipeline_type = PipelineType::kTrainSparseDist;
  const BoundCostModel hiding = BoundTo(request_, ConcaveCostModel());
  NS_ASSERT_OK_AND_ASSIGN(PlanCost hidden, PricePlan(request_, plan_, hiding));
  request_.pipeline_type = PipelineType::kNone;
  const BoundCostModel exposing = BoundTo(request_, ConcaveCostModel());
  NS_ASSERT_OK_AND_ASSIGN(const PlanCost exposed, PricePlan(request_, plan_, exposing));

  const InputDist& input_dist = *exposing.input_dist();
  const float of_a_shard = input_dist.Ms(FeaturesOf(request_.tables[0], {}, 16000, 16));
  ASSERT_GT(of_a_shard, 0);
  double most = 0;
  for (std::size_t r = 0; r < 3; ++r) {
    const RankCost& rank = exposed.ranks[r];
    EXPECT_FALSE(unstated.ranks[r].input_dist_ms.has_value());
    EXPECT_TRUE(hidden.ranks[r].input_dist_hidden);
    EXPECT_FALSE(rank.input_dist_hidden);
    // Two shards each on ranks 0 and 2, of whole tables in the eyes of ids.
    EXPECT_FLOAT_EQ(static_cast<float>(*rank.input_dist_ms), r == 1 ? 0 : 2 * of_a_shard);
    EXPECT_EQ(hidden.ranks[r].input_dist_ms, rank.input_dist_ms);
    EXPECT_NEAR(rank.compute_ms, unstated.ranks[r].compute_ms, 1e-5);
    EXPECT_NEAR(rank.start_offset_ms, unstated.ranks[r].start_offset_ms + *rank.input_dist_ms,
                1e-4);
    most = std::max(most, rank.total_ms());
  }
  EXPECT_DOUBLE_EQ(exposed.embedding_cost_ms, most);
  EXPECT_GT(exposed.embedding_cost_ms, unstated.embedding_cost_ms);
  for (RankCost& rank : hidden.ranks) rank.input_dist_ms.reset();
  EXPECT_EQ(hidden, unstated);
}

}  // namespace
}  // namespace neuroshard
