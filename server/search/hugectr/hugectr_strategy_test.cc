#include "server/search/hugectr/hugectr_strategy.h"

#include <gmock/gmock.h>

#include "common/base/violations.h"
#include "server/evaluate/check_plan.h"
#include "server/search/run_search.h"
#include "tests/support/fake_cost_model.h"
#include "tests/support/random_plan_request.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::BoundTo;
using ::neuroshard::testing::FakeCostModel;
using ::neuroshard::testing::RandomPlanRequest;
using ::neuroshard::testing::StatusIs;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// Table 0 small enough to replicate, table 1 hot, table 2 neither; two hosts of two ranks.
PlanRequest Request() {
  PlanRequest request;
  request.memory.rule = MemoryRule::kWeightsOnly;
  request.search.strategy = "hugectr_auto";
  request.search.hugectr = {.bandwidth_ratio = 4, .data_parallel_threshold_gb = 1e-6};
  const std::pair<std::int64_t, double> tables[] = {{10, 5}, {1001, 100}, {1000, 30}};
  for (const auto& [rows, hotness] : tables) {
    Table& table = request.tables.emplace_back();
    table.name = "t" + std::to_string(request.tables.size() - 1);
    table.num_embeddings = rows;
    table.embedding_dim = 8;
    table.pooling_factor = hotness;
  }
  for (int r = 0; r < 4; ++r) request.topology.devices.push_back({r / 2, 1'000'000});
  return request;
}

TEST(HugeCtrStrategyTest, HoldersBecomeReplicasRowsOfSomeRanksOrAWholeTable) {
  const PlanRequest request = Request();
  NS_ASSERT_OK_AND_ASSIGN(
      const SearchResult result,
      RunSearch(request, BoundTo(request, FakeCostModel()), NeverStop(), nullptr));
  const std::vector<TablePlan>& tables = result.plan.tables;
  EXPECT_EQ(tables[0].sharding_type, ShardingType::kDataParallel);
  EXPECT_EQ(tables[0].compute_kernel, ComputeKernel::kDense);
  EXPECT_EQ(tables[0].shards.size(), 4U);
  // 100 / 4 + 1 and 30 / 2 + 1 on two of the ranks: 42; uncut, table 2 would cost 57 on its rank.
  EXPECT_EQ(tables[1].sharding_type, ShardingType::kRowWiseSubset);
  EXPECT_EQ(tables[1].shards,
            (std::vector<Shard>{
                {0, 251, 0, 8, 0}, {251, 250, 0, 8, 1}, {501, 250, 0, 8, 2}, {751, 250, 0, 8, 3}}));
  EXPECT_THAT(CheckPlan(request, result.plan), IsEmpty());
}

TEST(HugeCtrStrategyTest, HierarchicalCutsOverAllRanksOfItsHosts) {
  PlanRequest request = Request();
  request.search.hugectr.hierarchical = true;
  request.tables[2].pooling_factor = 100;  // as hot as table 1: a host for each
  NS_ASSERT_OK_AND_ASSIGN(
      const SearchResult result,
      RunSearch(request, BoundTo(request, FakeCostModel()), NeverStop(), nullptr));
  const std::vector<TablePlan>& tables = result.plan.tables;
  EXPECT_EQ(tables[0].sharding_type, ShardingType::kDataParallel);
  EXPECT_EQ(tables[1].shards, (std::vector<Shard>{{0, 501, 0, 8, 2}, {501, 500, 0, 8, 3}}));
  EXPECT_EQ(tables[2].shards, (std::vector<Shard>{{0, 500, 0, 8, 0}, {500, 500, 0, 8, 1}}));
  EXPECT_THAT(CheckPlan(request, result.plan), IsEmpty());
}

TEST(HugeCtrStrategyTest, HierarchicalNeedsSeveralEqualHosts) {
  PlanRequest request = Request();
  request.search.hugectr.hierarchical = true;
  request.topology.devices.pop_back();
  const auto result = RunSearch(request, BoundTo(request, FakeCostModel()), NeverStop(), nullptr);
  ASSERT_THAT(result, StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(Violations::FromStatus(result.status()).front().field, "search.hugectr.hierarchical");
}

TEST(HugeCtrStrategyTest, EveryPlanIsLegalAndRanksDifferInRoom) {
  Random random(34);
  int plans = 0;
  for (int i = 0; i < 3000; ++i) {
    PlanRequest request =
        RandomPlanRequest(random, {.max_ranks = 8, .min_slack = 1, .max_slack = 6});
    request.search.strategy = "hugectr_auto";
    request.search.hugectr.hierarchical = request.topology.num_ranks() > 2 &&
                                          request.topology.num_ranks() % 2 == 0 &&
                                          random.Below(2) == 0;
    request.search.hugectr.data_parallel_threshold_gb = 1e-9 * std::exp2(random.Between(0, 24));
    request.search.hugectr.bandwidth_ratio = 20 * random.UniformReal();
    const auto result = RunSearch(request, BoundTo(request, FakeCostModel()), NeverStop(), nullptr);
    if (!result.ok()) {
      ASSERT_THAT(result,
                  StatusIs(absl::StatusCode::kFailedPrecondition, StartsWith("no plan was found")));
      continue;
    }
    ++plans;
    const std::vector<Violation> violations = CheckPlan(request, result->plan);
    ASSERT_THAT(violations, IsEmpty()) << "instance " << i << ": " << violations.front().field
                                       << " " << violations.front().description;
  }
  EXPECT_GT(plans, 1500);
}

}  // namespace
}  // namespace neuroshard
