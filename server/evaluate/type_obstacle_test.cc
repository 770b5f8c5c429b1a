#include <gtest/gtest.h>

#include "server/evaluate/relayouts.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "tests/support/random_constraints.h"
#include "tests/support/random_plan_request.h"

namespace neuroshard {
namespace {

TEST(TypeObstacleTest, NamesTheDemandsThatStandInTheWay) {
  PlanRequest request;
  request.tables.resize(2);
  request.tables[0].name = "a";
  request.tables[1].name = "b";
  for (Table& table : request.tables) table.embedding_dim = 16;
  request.topology.devices = {{0, 1 << 20}, {0, 1 << 20}, {1, 1 << 20}};
  const TypeSet defaults = {ShardingType::kTableWise, ShardingType::kRowWise};
  EXPECT_EQ(TypeObstacle(request, defaults, 0, ShardingType::kRowWise), "");
  EXPECT_EQ(
      TypeObstacle(request, defaults, 0, ShardingType::kGridShard),
      "cost_model (only table_wise, row_wise, unless constraints.sharding_types names others)");
  request.constraints.tables.resize(1);
  request.constraints.tables[0].tables = {1};
  request.constraints.tables[0].forbidden_ranks = {2};
  EXPECT_EQ(TypeObstacle(request, defaults, 0, ShardingType::kRowWise), "");
  request.constraints.colocate = {{{0, 1}, GroupLevel::kRank}};
  EXPECT_EQ(TypeObstacle(request, defaults, 0, ShardingType::kRowWise),
            "constraints.colocate[0] ('a', 'b' on one rank)");
  request.constraints.colocate.clear();
  EXPECT_EQ(TypeObstacle(request, defaults, 1, ShardingType::kRowWise),
            "constraints.tables[0].forbidden_ranks (not ranks 2 for 'b')");
  request.topology.devices.resize(1);
  EXPECT_EQ(TypeObstacle(request, TypeSet::All(), 0, ShardingType::kRowWiseSubset),
            "the topology has too few ranks for it");
}

TEST(TypeObstacleTest, ThereIsOneExactlyWhereTheTypeIsOut) {
  Random random(9);
  testing::RandomRequestShape shape;
  shape.max_tables = 4;
  for (int i = 0; i < 100; ++i) {
    PlanRequest request = testing::RandomPlanRequest(random, shape);
    testing::AddRandomConstraints(random, request, 3);
    const CompiledRules rules(request, TypeSet::All());
    for (int t = 0; t < static_cast<int>(request.tables.size()); ++t) {
      for (const auto& word : kWords<ShardingType>) {
        EXPECT_EQ(TypeObstacle(request, TypeSet::All(), t, word.value).empty(),
                  rules.of(t).types.contains(word.value));
      }
    }
  }
}

}  // namespace
}  // namespace neuroshard
