#include "server/search/testing/all_plans.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "server/evaluate/check_plan.h"
#include "server/evaluate/price_plan.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/testing/exhaustive_search.h"
#include "tests/support/concave_cost_model.h"
#include "tests/support/random_constraints.h"
#include "tests/support/random_migration.h"
#include "tests/support/random_plan_request.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::AddRandomConstraints;
using ::neuroshard::testing::AddRandomMigration;
using ::neuroshard::testing::BoundTo;
using ::neuroshard::testing::ConcaveCostModel;
using ::neuroshard::testing::RandomPlanRequest;
using ::neuroshard::testing::RandomRequestShape;
using ::neuroshard::testing::RandomTablePlan;
using ::testing::IsEmpty;

RandomRequestShape Tiny() {
  RandomRequestShape shape;
  shape.max_tables = 2;
  shape.max_ranks = 4;
  shape.dims = {3, 4, 6, 8, 12};
  shape.ranks_per_host = {1, 2, 3};
  return shape;
}

TEST(AllPlansTest, EveryRandomLayoutIsAmongThem) {
  Random random(1);
  for (int i = 0; i < 300; ++i) {
    const PlanRequest request = RandomPlanRequest(random, Tiny());
    const std::vector<TablePlan> all = AllTablePlans(request, 0);
    const TablePlan plan = RandomTablePlan(random, request.tables[0], request.topology.hosts());
    EXPECT_EQ(std::count(all.begin(), all.end(), plan), 1);
  }
}

TEST(AllPlansTest, TheBestPlanIsLegalAndBeatsRandomOnes) {
  Random random(2);
  const ConcaveCostModel model;
  int compared = 0;
  for (int i = 0; i < 60; ++i) {
    PlanRequest request = RandomPlanRequest(random, Tiny());
    AddRandomConstraints(random, request, 8);
    if (i % 2 == 0) AddRandomMigration(random, request);
    const BestOfAllPlans best = BestOfAll(request, TypeSet::All(), BoundTo(request, model));
    if (best.feasible) {
      EXPECT_THAT(CheckPlan(request, best.plan), IsEmpty());
      EXPECT_GE(best.objective_ms, best.cost_ms);
    }
    for (int k = 0; k < 100; ++k) {
      const Plan plan = testing::RandomPlan(random, request);
      if (!CheckPlan(request, plan).empty()) continue;
      ASSERT_TRUE(best.feasible);
      EXPECT_LE(best.cost_ms, PricePlan(request, plan, BoundTo(request, model))->embedding_cost_ms);
      ++compared;
    }
  }
  EXPECT_GT(compared, 100);
}

TEST(AllPlansTest, DefaultTypesAreForTablesWithoutOthers) {
  Random random(3);
  const ConcaveCostModel model;
  PlanRequest request =
      RandomPlanRequest(random, {.max_tables = 1, .max_ranks = 3, .dims = {8}, .min_slack = 3});
  EXPECT_EQ(BestOfAll(request, {ShardingType::kTableWise}, BoundTo(request, model))
                .plan.tables[0]
                .sharding_type,
            ShardingType::kTableWise);
  request.constraints.tables.emplace_back();
  request.constraints.tables[0].tables = {0};
  request.constraints.tables[0].sharding_types = {ShardingType::kRowWise};
  EXPECT_EQ(BestOfAll(request, {ShardingType::kTableWise}, BoundTo(request, model))
                .plan.tables[0]
                .sharding_type,
            ShardingType::kRowWise);
}

}  // namespace
}  // namespace neuroshard
