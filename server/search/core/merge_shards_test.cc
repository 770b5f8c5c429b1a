#include "server/search/core/merge_shards.h"

#include <gmock/gmock.h>

#include <string>
#include <utility>

#include "common/domain/shard_layout.h"
#include "tests/support/concave_cost_model.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::BoundTo;
using ::neuroshard::testing::ConcaveCostModel;
using ::neuroshard::testing::IsOk;

// Three tables of 16 columns on two ranks.
PlanRequest ThreeTables() {
  PlanRequest request;
  for (const char* name : {"a", "b", "c"}) {
    Table table;
    table.name = name;
    table.num_embeddings = 1000;
    table.embedding_dim = 16;
    table.pooling_factor = 3;
    request.tables.push_back(table);
  }
  request.topology.devices = {{0, 1 << 30}, {0, 1 << 30}};
  return request;
}

TablePlan Columns(const std::string& name, const std::vector<std::pair<int, int>>& cols_of_ranks) {
  TablePlan plan;
  plan.name = name;
  std::int64_t offset = 0;
  for (const auto& [cols, rank] : cols_of_ranks) {
    plan.shards.push_back({.rows = 1000, .col_offset = offset, .cols = cols, .rank = rank});
    offset += cols;
  }
  plan.sharding_type =
      plan.shards.size() == 1 ? ShardingType::kTableWise : ShardingType::kColumnWise;
  return plan;
}

Plan Merged(const PlanRequest& request, Plan plan) {
  const ConcaveCostModel model;
  const BoundCostModel bound = BoundTo(request, model);
  const NeverStop never;
  SearchContext context(request, bound, never, nullptr);
  EXPECT_THAT(context.Improve(std::move(plan)), IsOk());
  EXPECT_THAT(MergeShards(context), IsOk());
  return context.best_plan();
}

TEST(MergeShardsTest, ColumnsOfATableOnOneRankAreOneShard) {
  const PlanRequest request = ThreeTables();
  const Plan plan{.world_size = 2,
                  .local_world_size = 2,
                  .tables = {Columns("a", {{8, 1}, {8, 1}}), Columns("b", {{4, 0}, {8, 1}, {4, 0}}),
                             Columns("c", {{16, 0}})}};
  const Plan expected{
      .world_size = 2,
      .local_world_size = 2,
      .tables = {Columns("a", {{16, 1}}), Columns("b", {{8, 0}, {8, 1}}), Columns("c", {{16, 0}})}};
  EXPECT_EQ(Merged(request, plan), expected);
}

TEST(MergeShardsTest, APlanInPlaceKeepsItsColumns) {
  PlanRequest request = ThreeTables();
  const Plan plan{
      .world_size = 2,
      .local_world_size = 2,
      .tables = {Columns("a", {{8, 1}, {8, 1}}), Columns("b", {{16, 0}}), Columns("c", {{16, 0}})}};
  request.migration.emplace().previous = plan;
  EXPECT_EQ(Merged(request, plan), plan);
}

TEST(MergeShardsTest, RulesStayKept) {
  PlanRequest request = ThreeTables();
  TableRule rule;
  rule.tables = {0};
  rule.sharding_types = {ShardingType::kColumnWise};
  request.constraints.tables.push_back(rule);
  const Plan plan{.world_size = 2,
                  .local_world_size = 2,
                  .tables = {Columns("a", {{8, 1}, {8, 1}}), Columns("b", {{8, 1}, {8, 1}}),
                             Columns("c", {{16, 0}})}};
  Plan expected = plan;
  expected.tables[1] = Columns("b", {{16, 1}});
  EXPECT_EQ(Merged(request, plan), expected);
}

}  // namespace
}  // namespace neuroshard
