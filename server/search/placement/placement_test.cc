#include "server/search/placement/placement.h"

#include <gmock/gmock.h>

namespace neuroshard {
namespace {

using ::testing::ElementsAre;

TEST(PlacementTest, PiecesBecomeShardsInColumnOrder) {
  PlanRequest request;
  request.topology.devices = {{0, 1000}, {0, 1000}};
  for (const char* name : {"a", "b"}) {
    Table table;
    table.name = name;
    table.module = "m";
    table.num_embeddings = 10;
    table.embedding_dim = 16;
    request.tables.push_back(table);
  }

  const Plan plan =
      BuildPlan(request, {{{1, 8, 4}, {0, 0, 16}, {1, 0, 8}, {1, 12, 4}}, {1, 0, 0, 1}});

  EXPECT_EQ(plan.world_size, 2);
  EXPECT_EQ(plan.local_world_size, 2);
  ASSERT_EQ(plan.tables.size(), 2U);
  EXPECT_EQ(plan.tables[0].name, "a");
  EXPECT_EQ(plan.tables[0].sharding_type, ShardingType::kTableWise);
  EXPECT_THAT(plan.tables[0].shards, ElementsAre(Shard{0, 10, 0, 16, 0}));
  EXPECT_EQ(plan.tables[1].sharding_type, ShardingType::kColumnWise);
  EXPECT_THAT(plan.tables[1].shards,
              ElementsAre(Shard{0, 10, 0, 8, 0}, Shard{0, 10, 8, 4, 1}, Shard{0, 10, 12, 4, 1}));
}

TEST(PlacementTest, TheReserveIsNotAvailable) {
  PlanRequest request;
  request.topology.devices = {{0, 1000}, {0, 50}};
  request.memory.reserve_fraction = 0.1;
  request.memory.reserve_bytes = 60;
  EXPECT_THAT(AvailableBytes(request), ElementsAre(840, -15));
}

}  // namespace
}  // namespace neuroshard
