#include "server/evaluate/check_layout.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>

#include "common/base/random.h"
#include "server/evaluate/check_plan.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/evaluate/testing/violation_is.h"
#include "tests/support/random_plan.h"

namespace neuroshard {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;
using enum ShardingType;

// One table of 5 rows and 16 columns on hosts of 2 and 2 ranks.
class CheckLayoutTest : public ::testing::Test {
 protected:
  std::vector<Violation> Check(ShardingType type, std::vector<Shard> shards,
                               ComputeKernel kernel = ComputeKernel::kFused) {
    PlanRequest request;
    Table table;
    table.name = "t";
    table.num_embeddings = 5;
    table.embedding_dim = 16;
    request.tables = {table};
    for (const int host : hosts_) request.topology.devices.push_back({host, 1 << 30});
    Plan plan;
    plan.world_size = request.topology.num_ranks();
    plan.local_world_size = request.topology.ranks_per_host();
    if (row_multiple_ > 0) {
      request.constraints.tables.emplace_back().tables = {0};
      request.constraints.tables.back().row_multiple = row_multiple_;
    }
    for (const RowProportion proportion : row_proportions_) {
      request.constraints.tables.emplace_back().tables = {0};
      request.constraints.tables.back().row_proportion = proportion;
      request.topology.devices[3].compute_speed = 2;
    }
    plan.tables = {{"t", "", type, kernel, std::move(shards)}};
    return CheckPlan(request, plan);
  }

  std::vector<int> hosts_ = {0, 0, 1, 1};
  std::int64_t row_multiple_ = 0;
  std::vector<RowProportion> row_proportions_;  // a rule each
};

TEST_F(CheckLayoutTest, EachTypeAsItsOwnersLayItOut) {
  EXPECT_THAT(Check(kTableWise, {{0, 5, 0, 16, 3}}), IsEmpty());
  EXPECT_THAT(Check(kColumnWise, {{0, 5, 0, 8, 3}, {0, 5, 8, 4, 0}, {0, 5, 12, 4, 3}}), IsEmpty());
  EXPECT_THAT(
      Check(kRowWise, {{0, 2, 0, 16, 0}, {2, 2, 0, 16, 1}, {4, 1, 0, 16, 2}, {5, 0, 0, 16, 3}}),
      IsEmpty());
  EXPECT_THAT(Check(kTableRowWise, {{0, 3, 0, 16, 2}, {3, 2, 0, 16, 3}}), IsEmpty());
  EXPECT_THAT(Check(kTableColumnWise, {{0, 5, 0, 8, 3}, {0, 5, 8, 8, 2}}), IsEmpty());
  EXPECT_THAT(
      Check(kGridShard, {{0, 3, 0, 4, 2}, {3, 2, 0, 4, 3}, {0, 3, 4, 12, 0}, {3, 2, 4, 12, 1}}),
      IsEmpty());
  EXPECT_THAT(
      Check(kDataParallel, {{0, 5, 0, 16, 0}, {0, 5, 0, 16, 1}, {0, 5, 0, 16, 2}, {0, 5, 0, 16, 3}},
            ComputeKernel::kDense),
      IsEmpty());
  EXPECT_THAT(Check(kRowWiseSubset, {{0, 2, 0, 16, 0}, {2, 2, 0, 16, 1}, {4, 1, 0, 16, 3}}),
              IsEmpty());
}

TEST_F(CheckLayoutTest, RowWiseHasOneBlockForEachRank) {
  EXPECT_THAT(
      Check(kRowWise, {{0, 2, 0, 16, 0}, {2, 3, 0, 16, 1}}),
      ElementsAre(ViolationIs("plan.tables[0].shards", "one shard for each rank, 4, got 2")));
  EXPECT_THAT(
      Check(kRowWise, {{0, 2, 0, 16, 0}, {2, 1, 0, 16, 2}, {3, 1, 0, 16, 1}, {4, 1, 0, 16, 3}}),
      UnorderedElementsAre(ViolationIs("plan.tables[0].shards[1].rows", "must be 2,"),
                           ViolationIs("plan.tables[0].shards[2].row_offset", "must be 4,"),
                           ViolationIs("plan.tables[0].shards[3].row_offset", "must be 5,"),
                           ViolationIs("plan.tables[0].shards[3].rows", "must be 0,"),
                           ViolationIs("plan.tables[0].shards[1].rank", "must be 1,"),
                           ViolationIs("plan.tables[0].shards[2].rank", "must be 2,")));
}

TEST_F(CheckLayoutTest, RowWiseKeepsBucketsTogether) {
  const std::vector<Shard> in_buckets = {
      {0, 2, 0, 16, 0}, {2, 1, 0, 16, 1}, {3, 1, 0, 16, 2}, {4, 1, 0, 16, 3}};
  EXPECT_THAT(Check(kRowWise, in_buckets), Not(IsEmpty()));
  row_multiple_ = 1;
  EXPECT_THAT(Check(kRowWise, in_buckets), IsEmpty());
  EXPECT_THAT(
      Check(kRowWise, {{0, 2, 0, 16, 0}, {2, 2, 0, 16, 1}, {4, 1, 0, 16, 2}, {5, 0, 0, 16, 3}}),
      Contains(ViolationIs("plan.tables[0].shards[1].rows", "must be 1,")));
  EXPECT_THAT(Check(kTableRowWise, {{0, 3, 0, 16, 2}, {3, 2, 0, 16, 3}}),
              ElementsAre(ViolationIs("plan.tables[0].sharding_type",
                                      "cuts rows as no table in buckets can be "
                                      "(constraints.tables[0].row_multiple)")));
}

// Rank 3 is twice as fast as the others.
TEST_F(CheckLayoutTest, RowWiseKeepsToTheProportion) {
  const std::vector<Shard> by_speed = {
      {0, 1, 0, 16, 0}, {1, 1, 0, 16, 1}, {2, 1, 0, 16, 2}, {3, 2, 0, 16, 3}};
  EXPECT_THAT(Check(kRowWise, by_speed), Not(IsEmpty()));
  row_proportions_ = {RowProportion::kSpeed, RowProportion::kSpeed};
  EXPECT_THAT(Check(kRowWise, by_speed), IsEmpty());
  EXPECT_THAT(Check(kTableWise, {{0, 5, 0, 16, 3}}), IsEmpty());
  EXPECT_THAT(
      Check(kRowWise, {{0, 2, 0, 16, 0}, {2, 1, 0, 16, 1}, {3, 1, 0, 16, 2}, {4, 1, 0, 16, 3}}),
      Contains(ViolationIs("plan.tables[0].shards[3].rows",
                           "must be 2, the rows that row_wise gives block 3 of 4 in proportion to "
                           "speed (row_proportion), got 1")));
  row_proportions_ = {RowProportion::kSpeed};
  EXPECT_THAT(Check(kTableRowWise, {{0, 3, 0, 16, 2}, {3, 2, 0, 16, 3}}),
              ElementsAre(ViolationIs("plan.tables[0].sharding_type",
                                      "cuts rows evenly, not in proportion to speed "
                                      "(constraints.tables[0].row_proportion): row_wise does")));
  row_proportions_ = {RowProportion::kSpeed, RowProportion::kMemory};
  EXPECT_THAT(Check(kRowWise, by_speed),
              ElementsAre(ViolationIs("plan.tables[0].sharding_type",
                                      "cannot be row_wise with rows in proportion to speed "
                                      "(constraints.tables[0].row_proportion) and to memory "
                                      "(constraints.tables[1].row_proportion)")));
}

TEST_F(CheckLayoutTest, TableRowWiseHasTheRanksOfAHost) {
  EXPECT_THAT(Check(kTableRowWise, {{0, 3, 0, 16, 1}, {3, 2, 0, 16, 2}}),
              ElementsAre(ViolationIs("plan.tables[0].shards[0].rank", "must be 0,"),
                          ViolationIs("plan.tables[0].shards[1].rank", "must be 1,")));
  hosts_ = {0, 0, 1, 1, 1};
  EXPECT_THAT(Check(kTableRowWise, {{0, 3, 0, 16, 2}, {3, 2, 0, 16, 3}}),
              ElementsAre(ViolationIs("plan.tables[0].shards", "first one's host, 3, got 2")));
  EXPECT_THAT(Check(kTableRowWise, {{0, 2, 0, 16, 2}, {2, 2, 0, 16, 3}, {4, 1, 0, 16, 4}}),
              IsEmpty());
}

TEST_F(CheckLayoutTest, GridShardsHaveTheirHostsRowBlocks) {
  EXPECT_THAT(
      Check(kGridShard, {{0, 3, 0, 8, 0}, {3, 2, 0, 8, 1}, {0, 3, 8, 8, 2}, {3, 2, 8, 8, 3}}),
      IsEmpty());
  EXPECT_THAT(
      Check(kGridShard, {{0, 3, 0, 8, 0}, {3, 2, 0, 4, 1}, {0, 3, 8, 8, 2}, {3, 2, 8, 8, 3}}),
      ElementsAre(ViolationIs("plan.tables[0].shards[1].cols", "must be 8 as in the first")));
  hosts_ = {0, 0, 1, 1, 1};
  EXPECT_THAT(
      Check(kGridShard,
            {{0, 3, 0, 8, 0}, {3, 2, 0, 8, 1}, {0, 2, 8, 8, 2}, {2, 2, 8, 8, 3}, {4, 1, 8, 8, 4}}),
      ElementsAre(
          ViolationIs("plan.tables[0].shards[2].rank",
                      "must be on a host of 2 ranks, as the first block is, got one of 3")));
}

TEST_F(CheckLayoutTest, TableColumnWiseStaysOnAHost) {
  EXPECT_THAT(
      Check(kTableColumnWise, {{0, 5, 0, 8, 1}, {0, 5, 8, 8, 2}}),
      ElementsAre(ViolationIs("plan.tables[0].shards[1].rank", "must be in [0, 2), the host")));
}

TEST_F(CheckLayoutTest, DataParallelHoldsAllOfItEverywhere) {
  EXPECT_THAT(
      Check(kDataParallel, {{0, 5, 0, 16, 0}, {0, 5, 0, 16, 1}}, ComputeKernel::kDense),
      ElementsAre(ViolationIs("plan.tables[0].shards", "one shard for each rank, 4, got 2")));
  EXPECT_THAT(
      Check(kDataParallel,
            {{0, 5, 0, 16, 0}, {0, 4, 0, 16, 1}, {0, 5, 0, 12, 2}, {0, 5, 0, 16, 2}}),
      UnorderedElementsAre(ViolationIs("plan.tables[0].compute_kernel", "must be dense with"),
                           ViolationIs("plan.tables[0].shards[1].rows", "all 5 rows"),
                           ViolationIs("plan.tables[0].shards[2].cols", "must be 16 as in"),
                           ViolationIs("plan.tables[0].shards[3].rank", "must be 3,")));
}

TEST_F(CheckLayoutTest, ASubsetHasTwoRanksAndEvenBlocks) {
  EXPECT_THAT(Check(kRowWiseSubset, {{0, 5, 0, 16, 1}}),
              ElementsAre(ViolationIs("plan.tables[0].shards", "at least two shards, got 1")));
  EXPECT_THAT(Check(kRowWiseSubset, {{0, 3, 0, 16, 2}, {3, 2, 0, 16, 1}}),
              ElementsAre(ViolationIs("plan.tables[0].shards[1].rank", "must be above 2")));
  EXPECT_THAT(Check(kRowWiseSubset, {{0, 2, 0, 16, 1}, {2, 3, 0, 16, 2}}),
              UnorderedElementsAre(ViolationIs("plan.tables[0].shards[0].rows", "must be 3,"),
                                   ViolationIs("plan.tables[0].shards[1].row_offset", "must be 3,"),
                                   ViolationIs("plan.tables[0].shards[1].rows", "must be 2,")));
}

TEST_F(CheckLayoutTest, OnlyTypesThatCutColumnsDo) {
  EXPECT_THAT(
      Check(kTableRowWise, {{0, 3, 0, 8, 2}, {3, 2, 0, 8, 3}}),
      ElementsAre(ViolationIs("plan.tables[0].shards[0].cols", "all 16 columns"),
                  ViolationIs("plan.tables[0].shards", "columns [8, 16) of 't' are in no shard")));
}

TEST_F(CheckLayoutTest, EmptyBlocksAreForTypesThatCutRows) {
  EXPECT_THAT(Check(kTableWise, {{5, 0, 0, 16, 0}}), Not(IsEmpty()));
  EXPECT_THAT(Check(kRowWiseSubset, {{0, 5, 0, 16, 0}, {5, 0, 0, 16, 1}}), Not(IsEmpty()));
}

TEST_F(CheckLayoutTest, DenseIsForDataParallelOnly) {
  EXPECT_THAT(
      Check(kTableWise, {{0, 5, 0, 16, 0}}, ComputeKernel::kDense),
      ElementsAre(ViolationIs("plan.tables[0].compute_kernel", "must be fused with table_wise")));
}

// Whatever LayOut makes is legal, and no number of it can be another unless the type leaves the
// choice: ranks of tables and column blocks.
TEST(LayOutTest, LayoutsAreLegalAndNothingElseIs) {
  Random random(17);
  for (int i = 0; i < 3000; ++i) {
    PlanRequest request;
    const int num_hosts = static_cast<int>(random.Between(1, 3));
    for (int h = 0; h < num_hosts; ++h) {
      request.topology.devices.resize(
          request.topology.devices.size() + static_cast<std::size_t>(random.Between(1, 3)),
          Device{h, std::int64_t{1} << 40});
    }
    const auto hosts = request.topology.hosts();
    const int num_ranks = request.topology.num_ranks();
    Table table;
    table.name = "t";
    table.num_embeddings = random.Between(1, 12);
    table.embedding_dim = random.Between(1, 24);
    request.tables = {table};
    Plan plan;
    plan.world_size = num_ranks;
    plan.local_world_size = request.topology.ranks_per_host();
    plan.tables = {testing::RandomTablePlan(random, table, hosts)};
    const ShardingType type = plan.tables[0].sharding_type;
    ASSERT_THAT(CheckPlan(request, plan), IsEmpty()) << ToText(type);

    Plan changed = plan;
    Shard& shard = changed.tables[0].shards[random.Below(changed.tables[0].shards.size())];
    const std::int64_t by = random.Below(2) == 0 ? 1 : -1;
    const auto alone = [&](int rank) {
      return std::find(hosts.begin(), hosts.end(), HostRanks{rank, 1}) != hosts.end();
    };
    const bool free_rank = !TakesEveryRank(type) &&
                           !((type == kTableRowWise || type == kGridShard) && !alone(shard.rank));
    switch (random.Below(free_rank ? 4 : 5)) {
      case 0:
        shard.row_offset += by;
        break;
      case 1:
        shard.rows += by;
        break;
      case 2:
        shard.col_offset += by;
        break;
      case 3:
        shard.cols += 4 * by;
        break;
      default:
        shard.rank += static_cast<int>(by);
    }
    ASSERT_THAT(CheckPlan(request, changed), Not(IsEmpty())) << ToText(type);
  }
}

}  // namespace
}  // namespace neuroshard
