#include "server/evaluate/batch_imbalance.h"

#include <gtest/gtest.h>

#include "server/cost/analytic/analytic_cost_model.h"
#include "server/evaluate/price_plan.h"
#include "tests/support/fake_cost_model.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::BoundTo;

class BatchImbalanceTest : public ::testing::Test {
 protected:
  BatchImbalanceTest() {
    request_.topology.devices = {{0, 1LL << 40}, {0, 1LL << 40}};
    plan_.world_size = plan_.local_world_size = 2;
    for (int t = 0; t < 2; ++t) {
      Table table;
      table.name = t == 0 ? "a" : "b";
      table.num_embeddings = 1000;
      table.embedding_dim = 64;
      table.pooling_factor = 10;
      request_.tables.push_back(table);
      plan_.tables.push_back(
          {table.name, "", ShardingType::kTableWise, ComputeKernel::kFused, {{0, 1000, 0, 64, t}}});
    }
  }

  double CostAt(double a, double b) const {
    PlanRequest request = request_;
    request.tables[0].pooling_factor = a;
    request.tables[1].pooling_factor = b;
    return PricePlan(request, plan_, Model()).value().embedding_cost_ms;
  }
  BoundCostModel Model() const { return BoundTo(request_, *MakeAnalyticCostModel()); }

  PlanRequest request_;
  Plan plan_;
};

TEST_F(BatchImbalanceTest, IsTheMeanOverBatchesOfTheCostliestRank) {
  request_.tables[0].batch_pooling_factors = {4, 16, 10};
  request_.tables[1].batch_pooling_factors = {16, 4, 10};
  NS_ASSERT_OK_AND_ASSIGN(const auto mean, MeanOfMaxMs(request_, plan_, Model(), NeverStop()));
  EXPECT_DOUBLE_EQ(*mean, (2 * CostAt(4, 16) + CostAt(10, 10)) / 3);
  EXPECT_GT(*mean, 1.2 * CostAt(10, 10));
}

TEST_F(BatchImbalanceTest, BatchesThatAreAlikeCostTheMean) {
  request_.tables[0].batch_pooling_factors = {10, 10};
  NS_ASSERT_OK_AND_ASSIGN(const auto mean, MeanOfMaxMs(request_, plan_, Model(), NeverStop()));
  EXPECT_DOUBLE_EQ(*mean, CostAt(10, 10));
}

TEST_F(BatchImbalanceTest, FeaturesKeepTheirProportions) {
  Table& table = request_.tables[0];
  table.features = {"f", "g"};
  table.pooling_factors = {9.5, 0.5};
  table.batch_pooling_factors = {20};
  NS_ASSERT_OK_AND_ASSIGN(const auto mean, MeanOfMaxMs(request_, plan_, Model(), NeverStop()));
  PlanRequest doubled = request_;
  doubled.tables[0].pooling_factor = 20;
  doubled.tables[0].pooling_factors = {19, 1};
  NS_ASSERT_OK_AND_ASSIGN(const PlanCost cost, PricePlan(doubled, plan_, Model()));
  EXPECT_DOUBLE_EQ(*mean, cost.embedding_cost_ms);
}

TEST_F(BatchImbalanceTest, NothingIsSaidWithoutBatches) {
  NS_ASSERT_OK_AND_ASSIGN(const auto mean, MeanOfMaxMs(request_, plan_, Model(), NeverStop()));
  EXPECT_FALSE(mean.has_value());
}

}  // namespace
}  // namespace neuroshard
