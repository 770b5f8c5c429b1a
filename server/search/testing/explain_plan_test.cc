#include "server/evaluate/explain_plan.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <optional>

#include "server/evaluate/check_plan.h"
#include "server/evaluate/price_plan.h"
#include "server/evaluate/testing/lay_out_table.h"
#include "server/search/testing/all_plans.h"
#include "tests/support/concave_cost_model.h"
#include "tests/support/random_constraints.h"
#include "tests/support/random_migration.h"
#include "tests/support/random_plan.h"
#include "tests/support/random_plan_request.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::AddRandomConstraints;
using ::neuroshard::testing::AddRandomMigration;
using ::neuroshard::testing::BoundTo;
using ::neuroshard::testing::ConcaveCostModel;
using ::neuroshard::testing::RandomPlan;
using ::neuroshard::testing::RandomPlanRequest;
using ::neuroshard::testing::RandomRequestShape;
using ::neuroshard::testing::StatusIs;
using ::testing::HasSubstr;
using enum ShardingType;

ConcaveCostModel ModelOfAllTypes(bool prices_exchanges = false) {
  ModelProperties properties;
  if (prices_exchanges) properties.measured_steps = testing::ConcaveSteps();
  std::vector<ShardingType> all;
  for (const auto& word : kWords<ShardingType>) all.push_back(word.value);
  return ConcaveCostModel(0, properties, std::move(all));
}

double ExchangesMs(const PlanCost& cost) {
  double sum_ms = 0;
  for (const ExchangeCost& exchange : cost.exchanges) sum_ms += exchange.time_ms;
  return sum_ms;
}

struct CostOfLayout {
  double embedding_cost_ms;
  double exchanges_ms;
  int num_shards;
};

// What every layout of one type would cost, all else staying; legal ones.
std::vector<CostOfLayout> CostsOf(const PlanRequest& request, const Plan& plan, std::size_t entry,
                                  int table, ShardingType type, const CostModel& model) {
  std::vector<CostOfLayout> costs;
  Plan changed = plan;
  for (const TablePlan& layout : AllTablePlans(request, table)) {
    if (layout.sharding_type != type) continue;
    changed.tables[entry] = layout;
    if (!CheckPlan(request, changed).empty()) continue;
    const PlanCost cost = PricePlan(request, changed, BoundTo(request, model)).value();
    costs.push_back(
        {cost.embedding_cost_ms, ExchangesMs(cost), static_cast<int>(layout.shards.size())});
  }
  return costs;
}

TEST(ExplainPlanTest, AlternativesAreLegalPlansWithThatCost) {
  RandomRequestShape shape;
  shape.max_tables = 4;
  shape.max_ranks = 4;
  shape.dims = {4, 8, 12};
  shape.ranks_per_host = {1, 2};
  shape.min_slack = 1.5;
  Random random(31);
  int legal_plans = 0;
  int possible = 0;
  int best = 0;
  int opened = 0;
  for (int i = 0; i < 3000 && legal_plans < 40; ++i) {
    PlanRequest request = RandomPlanRequest(random, shape);
    AddRandomConstraints(random, request, 10);
    if (i % 3 == 0) AddRandomMigration(random, request);
    if (i % 2 == 0) request.topology.devices.front().compute_speed = 0.2;
    const Plan plan = RandomPlan(random, request);
    if (!CheckPlan(request, plan).empty()) continue;
    ++legal_plans;
    const bool prices_exchanges = legal_plans % 2 == 0 && plan.world_size > 1;
    const ConcaveCostModel model = ModelOfAllTypes(prices_exchanges);
    const double exchanges_ms =
        ExchangesMs(PricePlan(request, plan, BoundTo(request, model)).value());
    NS_ASSERT_OK_AND_ASSIGN(const auto explanations,
                            ExplainPlan(request, plan, BoundTo(request, model)));
    ASSERT_EQ(explanations.size(), plan.tables.size());
    for (std::size_t e = 0; e < plan.tables.size(); ++e) {
      // The largest come first.
      const auto found = std::find_if(
          explanations.begin(), explanations.end(),
          [&](const TableExplanation& other) { return other.table == plan.tables[e].name; });
      ASSERT_NE(found, explanations.end());
      const TableExplanation& explanation = *found;
      EXPECT_EQ(explanation.sharding_type, plan.tables[e].sharding_type);
      ASSERT_EQ(explanation.alternatives.size(), kWords<ShardingType>.size() - 1);
      std::optional<double> before = 0;
      for (const TableAlternative& alternative : explanation.alternatives) {
        const auto costs =
            CostsOf(request, plan, e, static_cast<int>(e), alternative.sharding_type, model);
        EXPECT_EQ(alternative.reason.empty(), alternative.embedding_cost_ms.has_value());
        if (!alternative.embedding_cost_ms.has_value()) {
          before.reset();
          if (alternative.reason.starts_with("constraints")) {
            EXPECT_TRUE(costs.empty());
          }
          continue;
        }
        ++possible;
        ASSERT_TRUE(before.has_value());  // possible ones first, cheapest first
        EXPECT_GE(*alternative.embedding_cost_ms, *before);
        before = alternative.embedding_cost_ms;
        const double cost_ms = *alternative.embedding_cost_ms;
        EXPECT_EQ(alternative.more_exchanges_ms.has_value(), prices_exchanges);
        const double more_ms = alternative.more_exchanges_ms.value_or(0);
        EXPECT_TRUE(std::any_of(costs.begin(), costs.end(), [&](const CostOfLayout& of) {
          return std::abs(of.embedding_cost_ms - cost_ms) < 1e-4 &&
                 std::abs(of.exchanges_ms - exchanges_ms - more_ms) < 1e-4 &&
                 of.num_shards == alternative.num_shards;
        })) << ToText(alternative.sharding_type);
        opened += more_ms > 0 ? 1 : 0;
        const auto cheapest = std::ranges::min_element(costs, {}, &CostOfLayout::embedding_cost_ms);
        best += cheapest != costs.end() && cost_ms < cheapest->embedding_cost_ms + 1e-4 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(possible, 200);
  EXPECT_GT(opened, 20);
  EXPECT_GT(best, possible * 6 / 10);
}

TEST(ExplainPlanTest, WhatIsImpossibleSaysWhy) {
  const ConcaveCostModel model;  // made for table_wise and column_wise
  PlanRequest request;
  request.memory.rule = MemoryRule::kWeightsOnly;
  for (const char* name : {"a", "b"}) {
    Table& table = request.tables.emplace_back();
    table.name = name;
    table.num_embeddings = 100;
    table.embedding_dim = 8;
  }
  request.topology.devices = {{0, 6400}, {0, 3200}};
  request.constraints.tables.resize(1);
  request.constraints.tables[0].tables = {0};
  request.constraints.tables[0].sharding_types = {kTableWise, kRowWise, kDataParallel};
  Plan plan;
  plan.world_size = plan.local_world_size = 2;
  const Block whole = {0, 8};
  for (std::size_t t = 0; t < 2; ++t) {
    const int rank = static_cast<int>(t);
    plan.tables.push_back(LayOutTable(request.tables[t], kTableWise, {&whole, 1}, {&rank, 1},
                                      request.topology.hosts()));
  }
  NS_ASSERT_OK_AND_ASSIGN(const auto explanations,
                          ExplainPlan(request, plan, BoundTo(request, model)));
  const auto reason = [&](std::size_t table, ShardingType type) {
    for (const TableAlternative& alternative : explanations[table].alternatives) {
      if (alternative.sharding_type == type) return alternative.reason;
    }
    return std::string("not listed");
  };
  EXPECT_THAT(reason(0, kColumnWise), HasSubstr("constraints.tables[0].sharding_types"));
  EXPECT_THAT(reason(0, kDataParallel), HasSubstr("memory"));
  EXPECT_THAT(reason(1, kRowWise), HasSubstr("cost_model"));
  EXPECT_EQ(reason(1, kColumnWise), "");
}

TEST(ExplainPlanTest, WhatCannotBePricedIsAnError) {
  const ConcaveCostModel model;
  Random random(1);
  const PlanRequest request = RandomPlanRequest(random);
  Plan plan = RandomPlan(random, request);
  plan.tables[0].name = "stranger";
  EXPECT_THAT(ExplainPlan(request, plan, BoundTo(request, model)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("plan.tables[0].name")));
}

TEST(ExplainPlanTest, BrokenPlansAreExplainedAsFarAsTheyGo) {
  const ConcaveCostModel model = ModelOfAllTypes();
  Random random(2);
  for (int i = 0; i < 100; ++i) {
    PlanRequest request = RandomPlanRequest(random);
    AddRandomConstraints(random, request, 3);
    if (i % 2 == 0) AddRandomMigration(random, request);
    Plan plan = RandomPlan(random, request);
    plan.tables.push_back(plan.tables.front());
    plan.tables.erase(plan.tables.begin());
    plan.tables.push_back(plan.tables.front());
    NS_ASSERT_OK_AND_ASSIGN(const auto explanations,
                            ExplainPlan(request, plan, BoundTo(request, model)));
    EXPECT_EQ(explanations.size(), plan.tables.size());
  }
}

}  // namespace
}  // namespace neuroshard
