#include "server/evaluate/check_plan.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <limits>
#include <string>

#include "server/evaluate/testing/violation_is.h"

namespace neuroshard {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kSmallest = std::numeric_limits<std::int64_t>::min();

// Three tables (dims 16, 10, 8; 100 rows each) on two hosts with two ranks each.
class CheckPlanTest : public ::testing::Test {
 protected:
  CheckPlanTest() {
    request_.memory.rule = MemoryRule::kWeightsOnly;
    for (const std::int64_t dim : {16, 10, 8}) {
      Table table;
      table.name = "t" + std::to_string(request_.tables.size());
      table.module = "ebc";
      table.num_embeddings = 100;
      table.embedding_dim = dim;
      request_.tables.push_back(table);
    }
    request_.topology.devices = {{0, 8000}, {0, 8000}, {1, 8000}, {1, 8000}};
    plan_.world_size = 4;
    plan_.local_world_size = 2;
    plan_.tables = {
        {"t0",
         "ebc",
         ShardingType::kColumnWise,
         ComputeKernel::kFused,
         {{0, 100, 0, 4, 0}, {0, 100, 4, 12, 1}}},
        {"t1",
         "ebc",
         ShardingType::kColumnWise,
         ComputeKernel::kFused,
         {{0, 100, 0, 4, 2}, {0, 100, 4, 6, 3}}},
        {"t2", "ebc", ShardingType::kTableWise, ComputeKernel::kFused, {{0, 100, 0, 8, 2}}},
    };
  }

  std::vector<Violation> Check() const { return CheckPlan(request_, plan_); }

  PlanRequest request_;
  Plan plan_;
};

TEST_F(CheckPlanTest, ALegalPlanBreaksNoRule) { EXPECT_THAT(Check(), IsEmpty()); }

TEST_F(CheckPlanTest, TablesMayStandInAnyOrder) {
  std::swap(plan_.tables[0], plan_.tables[2]);
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(CheckPlanTest, TheWorldIsTheTopologys) {
  plan_.world_size = 8;
  plan_.local_world_size = 4;
  EXPECT_THAT(Check(), ElementsAre(ViolationIs("plan.world_size", "must be 4"),
                                   ViolationIs("plan.local_world_size", "must be 2")));
}

TEST_F(CheckPlanTest, HostsOfDifferentSizeHaveNoLocalWorldSize) {
  request_.topology.devices[3].host = 2;
  EXPECT_THAT(Check(), ElementsAre(ViolationIs("plan.local_world_size", "hosts differ")));
  plan_.local_world_size = 0;
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(CheckPlanTest, EveryTableOnceAndNoOther) {
  plan_.tables[0].name = "t2";
  plan_.tables[0].shards = plan_.tables[2].shards;
  plan_.tables[1].name = "stranger";
  EXPECT_THAT(
      Check(),
      ElementsAre(ViolationIs("plan.tables[1].name", "names no table of the request"),
                  ViolationIs("plan.tables[2].name", "already appears as plan.tables[0]"),
                  ViolationIs("plan.tables", "'t0' (tables[0] of the request) is missing"),
                  ViolationIs("plan.tables", "'t1' (tables[1] of the request) is missing")));
}

TEST_F(CheckPlanTest, TheModuleIsTheRequests) {
  plan_.tables[2].module = "other";
  EXPECT_THAT(Check(), ElementsAre(ViolationIs("plan.tables[2].module", "must be 'ebc'")));
}

TEST_F(CheckPlanTest, RanksExist) {
  plan_.tables[0].shards[1].rank = 4;
  plan_.tables[1].shards[0].rank = -1;
  EXPECT_THAT(
      Check(),
      ElementsAre(ViolationIs("plan.tables[0].shards[1].rank", "must be in [0, 4), got 4"),
                  ViolationIs("plan.tables[1].shards[0].rank", "must be in [0, 4), got -1")));
}

TEST_F(CheckPlanTest, TableWiseIsOneShard) {
  plan_.tables[0].sharding_type = ShardingType::kTableWise;
  EXPECT_THAT(Check(),
              ElementsAre(ViolationIs("plan.tables[0].shards", "exactly one shard, got 2")));
}

TEST_F(CheckPlanTest, ColumnWiseMayBeOneShard) {
  plan_.tables[2].sharding_type = ShardingType::kColumnWise;
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(CheckPlanTest, ATableHasShards) {
  plan_.tables[2].shards.clear();
  EXPECT_THAT(Check(), ElementsAre(ViolationIs("plan.tables[2].shards", "at least one shard")));
}

TEST_F(CheckPlanTest, GapsAndOverlapsAreFound) {
  plan_.tables[0].shards[1] = {0, 100, 8, 8, 1};
  plan_.tables[1].shards[1] = {0, 100, 4, 4, 3};
  plan_.tables[2].shards.push_back({0, 100, 4, 4, 0});
  plan_.tables[2].sharding_type = ShardingType::kColumnWise;
  EXPECT_THAT(Check(), ElementsAre(ViolationIs("plan.tables[0].shards", "columns [4, 8) of 't0'"),
                                   ViolationIs("plan.tables[1].shards", "columns [8, 10) of 't1'"),
                                   ViolationIs("plan.tables[2].shards[1].col_offset",
                                               "columns [4, 8) are in another shard too")));
}

TEST_F(CheckPlanTest, ShardsAscend) {
  std::swap(plan_.tables[0].shards[0], plan_.tables[0].shards[1]);
  EXPECT_THAT(Check(), ElementsAre(ViolationIs("plan.tables[0].shards", "ascending")));
}

TEST_F(CheckPlanTest, CutsAreAligned) {
  plan_.tables[0].shards = {{0, 100, 0, 6, 0}, {0, 100, 6, 10, 1}};
  EXPECT_THAT(Check(),
              ElementsAre(ViolationIs("plan.tables[0].shards[0].cols", "multiple of 4, got 6"),
                          ViolationIs("plan.tables[0].shards[1].col_offset", "got 6"),
                          ViolationIs("plan.tables[0].shards[1].cols", "got 10")));
}

TEST_F(CheckPlanTest, OnlyTheLastShardOfARaggedTableIsRagged) {
  plan_.tables[1].shards = {{0, 100, 0, 6, 2}, {0, 100, 6, 4, 3}};
  EXPECT_THAT(Check(), ElementsAre(ViolationIs("plan.tables[1].shards[0].cols", "got 6"),
                                   ViolationIs("plan.tables[1].shards[1].col_offset", "got 6")));
}

TEST_F(CheckPlanTest, RowsAreNotCut) {
  plan_.tables[2].shards[0].rows = 50;
  EXPECT_THAT(Check(), ElementsAre(ViolationIs("plan.tables[2].shards[0].rows", "all 100 rows")));
}

TEST_F(CheckPlanTest, HostileNumbersAreOutOfRangeAndNothingOverflows) {
  plan_.tables[0].shards = {{0, 100, kLargest, kLargest, 0}, {0, 100, kSmallest, kSmallest, 0}};
  plan_.tables[1].shards = {{kLargest, kLargest, 0, 10, 0}};
  plan_.tables[2].shards = {{0, 100, 4, 8, std::numeric_limits<int>::min()}};
  EXPECT_THAT(
      Check(),
      ElementsAre(ViolationIs("plan.tables[0].shards[0].col_offset", "must be in [0, 16)"),
                  ViolationIs("plan.tables[0].shards[0].cols", "must be in [1, 16]"),
                  ViolationIs("plan.tables[0].shards[1].col_offset", "must be in [0, 16)"),
                  ViolationIs("plan.tables[0].shards[1].cols", "must be in [1, 16]"),
                  ViolationIs("plan.tables[1].shards[0].row_offset", "must be in [0, 100)"),
                  ViolationIs("plan.tables[1].shards[0].rows", "must be in [1, 100]"),
                  ViolationIs("plan.tables[2].shards[0].cols", "must be at most 4 at col_offset 4"),
                  ViolationIs("plan.tables[2].shards[0].rank", "must be in [0, 4)")));
}

TEST_F(CheckPlanTest, EachRankKeepsItsOwnCapacityLessTheReserve) {
  // Rank 2 holds 100 x (4 + 8) x 4 = 4800 bytes.
  request_.topology.devices[2].memory_bytes = 4800;
  EXPECT_THAT(Check(), IsEmpty());
  request_.topology.devices[2].memory_bytes = 4799;
  EXPECT_THAT(Check(), ElementsAre(ViolationIs("plan.tables", "rank 2 needs 4800 bytes")));
  request_.topology.devices[2].memory_bytes = 4800;
  request_.memory.reserve_bytes = 7;
  EXPECT_THAT(Check(), ElementsAre(ViolationIs("plan.tables", "7 bytes over")));
}

TEST_F(CheckPlanTest, ARankWithoutShardsNeedsNoRoomForItsReserve) {
  request_.memory.reserve_bytes = 500;
  request_.topology.devices.push_back({2, 10});
  request_.topology.devices.push_back({2, 10});
  plan_.world_size = 6;
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(CheckPlanTest, TheWholeMemoryRuleCounts) {
  request_.memory.rule = MemoryRule::kFull;
  request_.global_batch_size = 1000;  // 1000 x 4 x 4 B of output alone
  EXPECT_THAT(Check(), Contains(ViolationIs("plan.tables", "rank 0 needs")));
}

TEST_F(CheckPlanTest, ManyViolationsAreCounted) {
  TablePlan stranger;
  stranger.name = "x";
  plan_.tables.resize(plan_.tables.size() + 500, stranger);
  const std::vector<Violation> violations = Check();
  EXPECT_THAT(violations, SizeIs(Violations::kMaxKept + 1));
  EXPECT_EQ(violations.back().description, "400 more violations");
}

TEST_F(CheckPlanTest, AnEmptyPlanMissesEverything) {
  plan_ = Plan{};
  EXPECT_THAT(Check(), SizeIs(5));
}

TEST_F(CheckPlanTest, TablesOfSaturatedSizeDoNotWrapAround) {
  request_.tables.clear();
  plan_.tables.clear();
  request_.memory.rule = MemoryRule::kFull;
  request_.optimizer = Optimizer::kAdam;
  for (int t = 0; t < 5000; ++t) {
    Table table;
    table.name = std::to_string(t);
    table.num_embeddings = std::int64_t{1} << 48;
    table.embedding_dim = 65536;
    request_.tables.push_back(table);
    plan_.tables.push_back({table.name,
                            "",
                            ShardingType::kTableWise,
                            ComputeKernel::kFused,
                            {{0, table.num_embeddings, 0, 65536, 1}}});
  }
  EXPECT_THAT(Check(), ElementsAre(ViolationIs("plan.tables", "rank 1 needs")));
}

}  // namespace
}  // namespace neuroshard
