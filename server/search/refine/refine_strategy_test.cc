#include "server/search/refine/refine_strategy.h"

#include <gtest/gtest.h>

#include <vector>

#include "server/evaluate/check_plan.h"
#include "server/evaluate/price_plan.h"
#include "server/search/run_search.h"
#include "tests/support/concave_cost_model.h"
#include "tests/support/random_plan_request.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::ConcaveCostModel;
using ::neuroshard::testing::RandomPlanRequest;

class EveryImprovement final : public SearchObserver {
 public:
  explicit EveryImprovement(const PlanRequest& request) : request_(request) {}

  void OnImprovement(const SearchResult& result) override {
    EXPECT_TRUE(CheckPlan(request_, result.plan).empty());
    if (!costs_ms.empty()) {
      EXPECT_LT(result.cost.embedding_cost_ms, costs_ms.back());
    }
    costs_ms.push_back(result.cost.embedding_cost_ms);
  }
  void OnProgress(double) override {}

  std::vector<double> costs_ms;

 private:
  const PlanRequest& request_;
};

TEST(RefineStrategyTest, ImprovesOnNeuroShardAndNeverLoses) {
  Random random(31);
  double neuroshard_ms = 0;
  double refine_ms = 0;
  for (int i = 0; i < 60; ++i) {
    const ConcaveCostModel model(static_cast<std::uint64_t>(i % 5));
    PlanRequest request = RandomPlanRequest(random, {.max_tables = 15});
    request.search.max_length = 3;
    request.search.refine_steps = 100;
    request.search.strategy = "neuroshard";
    const auto neuroshard = RunSearch(request, model, NeverStop(), nullptr);
    request.search.strategy = "refine";
    EveryImprovement observer(request);
    const auto refine = RunSearch(request, model, NeverStop(), &observer);
    ASSERT_EQ(refine.ok(), neuroshard.ok());
    if (!refine.ok()) continue;
    ASSERT_LE(refine->cost.embedding_cost_ms, neuroshard->cost.embedding_cost_ms);
    NS_ASSERT_OK_AND_ASSIGN(const PlanCost cost, PricePlan(request, refine->plan, model));
    ASSERT_EQ(refine->cost, cost);
    neuroshard_ms += neuroshard->cost.embedding_cost_ms;
    refine_ms += refine->cost.embedding_cost_ms;
  }
  EXPECT_LT(refine_ms, 0.99 * neuroshard_ms);
}

TEST(RefineStrategyTest, TheSameStepsGiveTheSamePlan) {
  Random random(32);
  const ConcaveCostModel model;
  for (int i = 0; i < 20; ++i) {
    PlanRequest request = RandomPlanRequest(random);
    request.search.strategy = "refine";
    request.search.max_length = 2;
    request.search.refine_steps = 60;
    const auto first = RunSearch(request, model, NeverStop(), nullptr);
    const auto second = RunSearch(request, model, NeverStop(), nullptr);
    ASSERT_EQ(first.ok(), second.ok());
    if (first.ok()) {
      ASSERT_EQ(*first, *second);
    }
  }
}

TEST(RefineStrategyTest, MoreThreadsNeverMakeAPlanDearer) {
  Random random(33);
  const ConcaveCostModel model;
  double alone_ms = 0;
  double together_ms = 0;
  for (int i = 0; i < 30; ++i) {
    PlanRequest request = RandomPlanRequest(random, {.max_tables = 15});
    request.search.strategy = "refine";
    request.search.max_length = 2;
    request.search.refine_steps = 30;
    const auto alone = RunSearch(request, model, NeverStop(), nullptr);
    if (!alone.ok()) continue;
    request.search.max_threads = 3;
    EveryImprovement observer(request);
    NS_ASSERT_OK_AND_ASSIGN(const SearchResult together,
                            RunSearch(request, model, NeverStop(), &observer));
    ASSERT_LE(together.cost.embedding_cost_ms, alone->cost.embedding_cost_ms);
    ASSERT_EQ(together.cost.embedding_cost_ms, observer.costs_ms.back());
    alone_ms += alone->cost.embedding_cost_ms;
    together_ms += together.cost.embedding_cost_ms;
  }
  EXPECT_LT(together_ms, alone_ms);
}

}  // namespace
}  // namespace neuroshard
