// The planner, the search and a universal model together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "common/base/random.h"
#include "server/networks/network_cost_model.h"
#include "server/networks/testing/universal_fixture.h"
#include "server/planner/planner.h"
#include "server/search/run_search.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::FakeClock;
using ::neuroshard::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class UniversalPlanningTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto root = std::filesystem::path(::testing::TempDir()) /
                      (std::string("universal_planning_") +
                       ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(root);
    NS_ASSERT_OK_AND_ASSIGN(const auto directory, WriteUniversalFixture(root));
    NS_ASSERT_OK_AND_ASSIGN(const ModelManifest manifest, ReadModelManifest(directory));
    NS_ASSERT_OK_AND_ASSIGN(model_, LoadCostModel(manifest, directory));
    Random random(3);
    for (int t = 0; t < 9; ++t) {
      Table& table = request_.tables.emplace_back();
      table.name = "t" + std::to_string(t);
      table.num_embeddings = random.Between(1000, 2'000'000);
      table.embedding_dim = 16 * random.Between(1, 8);
      table.pooling_factor = static_cast<double>(random.Between(1, 40));
      table.reuse_histogram[0] = 1;
    }
    request_.global_batch_size = 4096;
    for (const int host : {0, 0, 1}) {
      request_.topology.devices.push_back({.host = host, .memory_bytes = std::int64_t{1} << 32});
    }
    request_.search.refine_steps = 200;
  }

  Planner MakePlanner() const {
    return Planner([this](const PlanRequest&) { return std::vector{model_}; }, RunSearch, clock_);
  }

  FakeClock clock_;
  NeverStop never_;
  std::shared_ptr<const CostModel> model_;
  PlanRequest request_;
};

TEST_F(UniversalPlanningTest, PlansAreRepeatableLegalAndCostWhatEvaluationSays) {
  for (const char* strategy : {"refine", "neuroshard"}) {
    request_.search.strategy = strategy;
    NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer answer,
                            MakePlanner().MakePlan(request_, never_, nullptr));
    NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer again,
                            MakePlanner().MakePlan(request_, never_, nullptr));
    EXPECT_EQ(again.plan, answer.plan);
    EXPECT_EQ(again.cost, answer.cost);
    EXPECT_THAT(answer.warnings, IsEmpty());
    NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer evaluation,
                            MakePlanner().EvaluatePlan(request_, answer.plan));
    EXPECT_THAT(evaluation.violations, IsEmpty());
    EXPECT_EQ(evaluation.cost, answer.cost);
    ASSERT_TRUE(answer.cost.interval.has_value());
    EXPECT_LT(answer.cost.interval->low_ms, answer.cost.embedding_cost_ms);
    EXPECT_GT(answer.cost.interval->high_ms, answer.cost.embedding_cost_ms);
  }
}

TEST_F(UniversalPlanningTest, ItsConvexHeadBoundsWholeTables) {
  request_.constraints.sharding_types = {ShardingType::kTableWise};
  NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer answer,
                          MakePlanner().MakePlan(request_, never_, nullptr));
  ASSERT_TRUE(answer.lower_bound.has_value());
  EXPECT_EQ(answer.lower_bound->kind, BoundKind::kCertified);
  EXPECT_GT(answer.lower_bound->cost_ms, 0);
  EXPECT_LE(answer.lower_bound->cost_ms, answer.cost.embedding_cost_ms * (1 + 1e-6));
}

TEST_F(UniversalPlanningTest, HostsArePricedAndWhatWasNotMeasuredIsSaid) {
  NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer answer,
                          MakePlanner().MakePlan(request_, never_, nullptr));
  PlanRequest one_host = request_;
  one_host.topology.devices[2].host = 0;
  Plan plan = answer.plan;
  plan.local_world_size = 3;
  NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer evaluation, MakePlanner().EvaluatePlan(one_host, plan));
  EXPECT_NE(evaluation.cost.embedding_cost_ms, answer.cost.embedding_cost_ms);

  request_.constraints.sharding_types = {ShardingType::kRowWise};  // measured collectives
  request_.optimizer = Optimizer::kAdam;
  NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer rows, MakePlanner().MakePlan(request_, never_, nullptr));
  EXPECT_THAT(rows.warnings, ElementsAre(HasSubstr("optimizer sgd, rowwise_adagrad")));
}

}  // namespace
}  // namespace neuroshard
