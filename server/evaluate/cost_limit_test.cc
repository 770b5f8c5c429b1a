#include "server/evaluate/cost_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/random.h"
#include "server/cost/analytic/analytic_cost_model.h"
#include "server/evaluate/lower_bound.h"
#include "server/evaluate/testing/table_prices.h"
#include "tests/support/concave_cost_model.h"
#include "tests/support/trials.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::BoundTo;
using ::neuroshard::testing::Cheapest;
using ::neuroshard::testing::ConcaveCostModel;
using ::neuroshard::testing::Layouts;
using ::neuroshard::testing::RequestOfDims;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;

PlanRequest Request(int num_ranks, const std::vector<std::int64_t>& dims) {
  return RequestOfDims(num_ranks, num_ranks, dims);
}

std::optional<LiftedRules> LimitOf(const PlanRequest& request) {
  const BoundCostModel model = BoundTo(request, *MakeAnalyticCostModel());
  return CostLimitOf(request, model, LowerBoundOf(request, model));
}

double BoundMs(const PlanRequest& request) {
  return LowerBoundOf(request, BoundTo(request, *MakeAnalyticCostModel())).cost_ms;
}

double CheapestPlanMs(const PlanRequest& request) {
  const CompiledRules rules(request,
                            TypeSet(MakeAnalyticCostModel()->info().coverage.sharding_types));
  std::vector<Layouts> tables;
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    tables.emplace_back(request, request.tables[t], rules.tables()[t],
                        rules.row_cut(static_cast<int>(t)));
  }
  return Cheapest(tables, 0, std::vector<double>(request.topology.devices.size()));
}

constexpr auto kPath = [](const auto& path) { return Field(&CostLimitRule::path, path); };

// One table lies on every rank, the other cannot be cut beside it.
TEST(CostLimitTest, NamesTheTableTheRuleAndWhatEveryRankHolds) {
  PlanRequest request = Request(4, {4, 128});
  // What is sent is all that they cost.
  for (Table& table : request.tables) table.pooling_factor = 0.001;
  request.constraints.column_rule = ColumnRule::kTorchRec;
  request.constraints.tables.resize(2);
  request.constraints.tables[0].tables = {0};
  request.constraints.tables[0].sharding_types = {ShardingType::kRowWise};
  request.constraints.tables[1].tables = {1};
  request.constraints.tables[1].sharding_types = {ShardingType::kColumnWise};
  const auto lifted = LimitOf(request);
  ASSERT_TRUE(lifted && lifted->without);
  const CostLimit& limit = lifted->limit;
  EXPECT_EQ(limit.table, "t2");
  EXPECT_EQ(limit.every_rank_tables, 1);
  EXPECT_NEAR(limit.shard_ms + limit.every_rank_ms, BoundMs(request), 1e-6 * BoundMs(request));
  EXPECT_THAT(limit.rules, ElementsAre(kPath("constraints.column_rule")));
  PlanRequest freely = request;
  freely.constraints.column_rule = ColumnRule::kAny;
  EXPECT_NEAR(*limit.bound_without_ms, BoundMs(freely), 1e-6 * BoundMs(freely));
  EXPECT_LT(*limit.bound_without_ms, 0.9 * BoundMs(request));
}

// Either alone keeps the table where it is.
TEST(CostLimitTest, DemandsThatHoldTogetherAreNamedTogether) {
  PlanRequest request = Request(4, {256});
  request.constraints.tables.resize(2);
  for (TableRule& rule : request.constraints.tables) {
    rule.tables = {0};
    rule.ranks = {1};
  }
  const auto lifted = LimitOf(request);
  ASSERT_TRUE(lifted);
  EXPECT_THAT(lifted->limit.rules, ElementsAre(kPath("constraints.tables[0].ranks"),
                                               kPath("constraints.tables[1].ranks")));
}

// Halves of 64 columns are dearer than the table of 128, which fits no device.
TEST(CostLimitTest, MemoryIsADemand) {
  PlanRequest request = Request(4, {128, 128, 128, 128});
  for (Device& device : request.topology.devices) device.memory_bytes = 400'000'000;
  const auto lifted = LimitOf(request);
  ASSERT_TRUE(lifted);
  EXPECT_THAT(lifted->limit.rules, ElementsAre(kPath("topology")));
}

TEST(CostLimitTest, AShardThatCannotBeCutFurtherIsNoDemandsFault) {
  const auto lifted = LimitOf(Request(64, {4}));
  ASSERT_TRUE(lifted);
  EXPECT_THAT(lifted->limit.rules, IsEmpty());
  EXPECT_FALSE(lifted->without);
}

// 500 tables: two bounds are looked at, and there are three to look at.
TEST(CostLimitTest, WhatTakesManyBoundsIsLookedForUnderExplainAlone) {
  std::vector<std::int64_t> dims(499, 4);
  dims.push_back(256);
  PlanRequest request = Request(4, dims);
  request.constraints.sharding_types = {ShardingType::kTableWise};
  request.tables.back().pooling_factor = 10'000;
  EXPECT_FALSE(LimitOf(request));
  request.search.explain = true;
  const auto lifted = LimitOf(request);
  ASSERT_TRUE(lifted);
  EXPECT_THAT(lifted->limit.rules, ElementsAre(kPath("constraints.sharding_types")));
}

TEST(CostLimitTest, AReferenceHasNone) {
  const PlanRequest request = Request(4, {128});
  const ConcaveCostModel concave;
  const BoundCostModel model = BoundTo(request, concave);
  EXPECT_FALSE(CostLimitOf(request, model, LowerBoundOf(request, model)));
}

// Against every plan: without what is named there are cheaper plans than the bound allowed, or
// those that there were are no dearer; where nothing is named, no demand makes a difference.
TEST(CostLimitTest, WhatIsNamedIsWhatHolds) {
  Random random(5);
  int named = 0;
  int cheaper = 0;
  int not_named = 0;
  for (int round = 0; round < testing::Trials(150); ++round) {
    const std::vector<std::int64_t> dims = {4, 8, 8, 12, 16};
    PlanRequest request = Request(static_cast<int>(random.Between(2, 3)),
                                  {dims[random.Below(5)], dims[random.Below(5)]});
    request.global_batch_size = random.Between(1, 10'000);
    for (int t = 0; t < 2; ++t) {
      Table& table = request.tables[static_cast<std::size_t>(t)];
      table.num_embeddings = random.Between(10, 100'000);
      table.pooling_factor = random.UniformReal() * (random.Below(2) == 0 ? 2 : 60);
      TableRule rule;
      rule.tables = {t};
      const TableRule nothing = rule;
      if (random.Below(3) == 0) {
        rule.sharding_types = {
            kWords<ShardingType>[random.Below(kWords<ShardingType>.size())].value};
      }
      if (random.Below(4) == 0) rule.max_shards = 1;
      if (random.Below(4) == 0) rule.ranks = {0};
      if (random.Below(4) == 0) rule.min_column_width = 8;
      if (!(rule == nothing)) request.constraints.tables.push_back(rule);
    }
    const double best_ms = CheapestPlanMs(request);
    if (!std::isfinite(best_ms)) continue;
    const double bound_ms = BoundMs(request);
    const auto lifted = LimitOf(request);
    if (lifted && lifted->without) {
      ASSERT_LT(BoundMs(*lifted->without), 0.99 * bound_ms) << "round " << round;
      const double best_without_ms = CheapestPlanMs(*lifted->without);
      ASSERT_LE(best_without_ms, best_ms * (1 + 1e-6)) << "round " << round;
      cheaper += best_without_ms < best_ms * (1 - 1e-6) ? 1 : 0;
      ++named;
    } else {
      PlanRequest free = request;
      free.constraints = {};
      ASSERT_GE(BoundMs(free), bound_ms * 0.99 * (1 - 1e-6)) << "round " << round;
      ++not_named;
    }
  }
  EXPECT_GE(named, testing::FewestCases(41));
  EXPECT_GE(not_named, testing::FewestCases(9));
  EXPECT_GT(cheaper, named * 3 / 4);
}

}  // namespace
}  // namespace neuroshard
