#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/base/random.h"
#include "common/domain/plan_cost.h"
#include "server/evaluate/price_plan.h"
#include "tests/support/status_matchers.h"
#include "tests/support/unsure_cost_model.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::BoundTo;
using ::neuroshard::testing::FakeCostModel;
using ::neuroshard::testing::IsOk;
using ::neuroshard::testing::UnsureCostModel;

// Table "a" (8 columns) on rank 0, "b" (4 columns) on rank 1, nothing on rank 2.
PlanRequest TwoTablesOnThreeRanks() {
  PlanRequest request;
  for (const auto& [name, dim] : {std::pair{"a", 8}, std::pair{"b", 4}}) {
    Table table;
    table.name = name;
    table.num_embeddings = 100;
    table.embedding_dim = dim;
    request.tables.push_back(table);
  }
  request.topology.devices.assign(3, Device{0, 1 << 20});
  return request;
}

Plan OneTableARank() {
  Plan plan;
  plan.tables = {{"a", "", ShardingType::kTableWise, ComputeKernel::kFused, {{0, 100, 0, 8, 0}}},
                 {"b", "", ShardingType::kTableWise, ComputeKernel::kFused, {{0, 100, 0, 4, 1}}}};
  return plan;
}

TEST(PlanIntervalsTest, EveryStageHasWhatTheModelSaysAndTheTotalsCombineThem) {
  const BoundCostModel model = BoundTo(TwoTablesOnThreeRanks(), UnsureCostModel());
  PlanCost cost = *PricePlan(TwoTablesOnThreeRanks(), OneTableARank(), model);
  ASSERT_THAT(AddIntervals(TwoTablesOnThreeRanks(), OneTableARank(), model, cost), IsOk());

  const RankCost& rank = cost.ranks[0];
  EXPECT_NEAR(rank.intervals.compute->low_ms, 0.9 * 1.08, 1e-6);
  EXPECT_NEAR(rank.intervals.compute->high_ms, 1.3 * 1.08, 1e-6);
  EXPECT_FALSE(rank.intervals.forward_compute.has_value());
  const double comm_ms = rank.forward_comm_ms + rank.backward_comm_ms;
  EXPECT_NEAR(rank.intervals.total->low_ms, rank.total_ms() - std::hypot(0.1 * 1.08, 0.4 * comm_ms),
              1e-6);
  EXPECT_NEAR(rank.intervals.total->high_ms,
              rank.total_ms() + std::hypot(0.3 * 1.08, 0.4 * comm_ms), 1e-6);
  // Rank 2 computes nothing, for certain, and waits for the others.
  EXPECT_EQ(cost.ranks[2].intervals.compute, CostInterval{});
  EXPECT_GT(cost.ranks[2].intervals.total->low_ms, 0);
  EXPECT_EQ(cost.interval_coverage, 0.9);
  EXPECT_LT(cost.interval->low_ms, cost.embedding_cost_ms);
  EXPECT_GT(cost.interval->high_ms, cost.embedding_cost_ms);
}

TEST(PlanIntervalsTest, ComputeIntervalsHaveTheirRanksSpeed) {
  PlanRequest request = TwoTablesOnThreeRanks();
  request.topology.devices[0].compute_speed = 2;
  const BoundCostModel model = BoundTo(request, UnsureCostModel());
  PlanCost cost = *PricePlan(request, OneTableARank(), model);
  ASSERT_THAT(AddIntervals(request, OneTableARank(), model, cost), IsOk());
  EXPECT_NEAR(cost.ranks[0].compute_ms, 1.08 / 2, 1e-6);
  EXPECT_NEAR(cost.ranks[0].intervals.compute->low_ms, 0.9 * 1.08 / 2, 1e-6);
  EXPECT_NEAR(cost.ranks[0].intervals.compute->high_ms, 1.3 * 1.08 / 2, 1e-6);
}

TEST(PlanIntervalsTest, TheModelIsToldWhoseRowsAreCutAndWhatIsReplicated) {
  const BoundCostModel model = BoundTo(TwoTablesOnThreeRanks(), UnsureCostModel());
  Plan plan = OneTableARank();
  plan.tables[0].sharding_type = ShardingType::kRowWise;
  plan.tables[0].shards = {{0, 34, 0, 8, 0}, {34, 34, 0, 8, 1}, {68, 32, 0, 8, 2}};
  PlanCost cost = *PricePlan(TwoTablesOnThreeRanks(), plan, model);
  ASSERT_THAT(AddIntervals(TwoTablesOnThreeRanks(), plan, model, cost), IsOk());
  for (const RankCost& rank : cost.ranks) {
    EXPECT_NEAR(rank.intervals.forward_comm->high_ms, 1.6 * rank.forward_comm_ms, 1e-6);
  }
  plan.tables[1].sharding_type = ShardingType::kDataParallel;
  plan.tables[1].shards = {{0, 100, 0, 4, 0}, {0, 100, 0, 4, 1}, {0, 100, 0, 4, 2}};
  cost = *PricePlan(TwoTablesOnThreeRanks(), plan, model);
  ASSERT_THAT(AddIntervals(TwoTablesOnThreeRanks(), plan, model, cost), IsOk());
  for (const RankCost& rank : cost.ranks) {
    EXPECT_NEAR(rank.intervals.backward_comm->high_ms, 1.8 * rank.backward_comm_ms, 1e-6);
  }
}

// Of the ids 1 ms is fixed, and a typical error is a factor of 1.5.
TEST(PlanIntervalsTest, IdsThatCountAreAsUnsureAsTheirRatesAre) {
  PlanRequest request = TwoTablesOnThreeRanks();
  request.pipeline_type = PipelineType::kNone;
  ModelProperties properties;
  properties.measured_input_dist = MeasuredInputDist{{{3, 1, 20, 20, 0}}, 1};
  const auto priced = [&] {
    const BoundCostModel model = BoundTo(request, UnsureCostModel(properties));
    PlanCost cost = *PricePlan(request, OneTableARank(), model);
    EXPECT_THAT(AddIntervals(request, OneTableARank(), model, cost), IsOk());
    return cost;
  };
  const PlanCost certain = priced();
  properties.input_dist_interval = IntervalManifest{0.9, 1, {1}, {std::log(1.5)}};
  const PlanCost unsure = priced();
  request.pipeline_type = PipelineType::kTrainSparseDist;
  const PlanCost hidden = priced();
  properties.input_dist_interval.reset();
  const PlanCost hidden_and_certain = priced();
  for (std::size_t r = 0; r < 3; ++r) {
    const RankCost& rank = unsure.ranks[r];
    const double ids_ms = rank.input_dist_ms.value();
    ASSERT_GE(ids_ms, 1);
    EXPECT_EQ(certain.ranks[r].intervals.input_dist, std::nullopt);
    EXPECT_NEAR(rank.intervals.input_dist->low_ms, ids_ms / 1.5, 1e-9);
    EXPECT_NEAR(rank.intervals.input_dist->high_ms, ids_ms * 1.5, 1e-9);
    const double comm_ms = rank.forward_comm_ms + rank.backward_comm_ms;
    EXPECT_NEAR(rank.intervals.total->low_ms,
                rank.total_ms() - std::hypot(0.1 * rank.compute_ms, 0.4 * comm_ms + ids_ms / 3),
                1e-6);
    EXPECT_NEAR(rank.intervals.total->high_ms,
                rank.total_ms() + std::hypot(0.3 * rank.compute_ms, 0.4 * comm_ms + ids_ms / 2),
                1e-6);
    EXPECT_NEAR(certain.ranks[r].intervals.total->high_ms,
                rank.total_ms() + std::hypot(0.3 * rank.compute_ms, 0.4 * comm_ms), 1e-6);
    EXPECT_TRUE(hidden.ranks[r].intervals.input_dist.has_value());
    EXPECT_EQ(hidden.ranks[r].intervals.total, hidden_and_certain.ranks[r].intervals.total);
  }
  EXPECT_GT(unsure.interval->high_ms, certain.interval->high_ms);
}

TEST(PlanIntervalsTest, AModelThatSaysNothingLeavesTheCostAlone) {
  const BoundCostModel model = BoundTo(TwoTablesOnThreeRanks(), FakeCostModel());
  const PlanCost cost = *PricePlan(TwoTablesOnThreeRanks(), OneTableARank(), model);
  PlanCost same = cost;
  ASSERT_THAT(AddIntervals(TwoTablesOnThreeRanks(), OneTableARank(), model, same), IsOk());
  EXPECT_EQ(same, cost);
}

RankCost RankOf(double cost_ms, double low_ms, double high_ms) {
  RankCost rank;
  rank.compute_ms = cost_ms;
  rank.intervals.total = CostInterval{low_ms, high_ms};
  return rank;
}

TEST(TotalIntervalTest, NeedsAllThreeStages) {
  RankCost rank;
  rank.intervals.compute = CostInterval{};
  rank.intervals.forward_comm = CostInterval{};
  EXPECT_EQ(TotalInterval(rank), std::nullopt);
  rank.intervals.backward_comm = CostInterval{};
  EXPECT_EQ(TotalInterval(rank), CostInterval{});
}

TEST(EmbeddingCostIntervalTest, OneRankHasItsOwnAndCertainRanksHaveTheLargest) {
  const std::vector<RankCost> one = {RankOf(2, 1, 4)};
  const auto interval = EmbeddingCostInterval(one, 0.9);
  EXPECT_EQ(interval->low_ms, 1);
  EXPECT_NEAR(interval->high_ms, 4, 1e-9);
  const std::vector<RankCost> certain = {RankOf(2, 2, 2), RankOf(3, 3, 3)};
  EXPECT_EQ(EmbeddingCostInterval(certain, 0.9), (CostInterval{3, 3}));
  std::vector<RankCost> unknown = one;
  unknown.emplace_back();
  EXPECT_EQ(EmbeddingCostInterval(unknown, 0.9), std::nullopt);
}

// Drawn both ways: all ranks by one draw, and each by its own.
TEST(EmbeddingCostIntervalTest, CoversRanksThatErrTogetherAndThoseThatDoNot) {
  constexpr int kDraws = 4000;
  constexpr double kZ = 1.6448536;
  const std::vector<RankCost> ranks = {RankOf(10, 9, 11), RankOf(10, 8, 12), RankOf(9.5, 9, 10),
                                       RankOf(9.8, 9, 10.6)};
  const CostInterval interval = *EmbeddingCostInterval(ranks, 0.9);
  Random random(5);
  const auto normal = [&] {
    const double radius = std::sqrt(-2 * std::log(1 - random.UniformReal()));
    return radius * std::cos(2 * 3.14159265358979 * random.UniformReal());
  };
  for (const bool together : {true, false}) {
    int inside = 0;
    for (int draw = 0; draw < kDraws; ++draw) {
      const double shared = normal();
      double largest_ms = 0;
      for (const RankCost& rank : ranks) {
        const double z = together ? shared : normal();
        const double deviation_ms = (rank.intervals.total->high_ms - rank.total_ms()) / kZ;
        largest_ms = std::max(largest_ms, rank.total_ms() + z * deviation_ms);
      }
      inside += largest_ms >= interval.low_ms && largest_ms <= interval.high_ms ? 1 : 0;
    }
    EXPECT_GT(inside, 0.89 * kDraws) << together;
  }
}

}  // namespace
}  // namespace neuroshard
