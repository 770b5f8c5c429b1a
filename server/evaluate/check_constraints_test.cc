#include "server/evaluate/check_constraints.h"

#include <gmock/gmock.h>

#include "server/evaluate/check_plan.h"
#include "server/evaluate/testing/lay_out_table.h"
#include "server/evaluate/testing/violation_is.h"

namespace neuroshard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using enum ShardingType;

// Three tables of 64 columns on 6 ranks of 3 hosts: t0 in columns of 16 on ranks 0 to 3, t1 whole
// on rank 4, t2 over the rows of host 0. Each demand is tried in a form that this plan keeps and in
// one that it breaks.
class CheckConstraintsTest : public ::testing::Test {
 protected:
  CheckConstraintsTest() {
    for (int t = 0; t < 3; ++t) {
      Table table;
      table.name = "t" + std::to_string(t);
      table.num_embeddings = 100;
      table.embedding_dim = 64;
      request_.tables.push_back(table);
    }
    for (const int host : {0, 0, 1, 1, 2, 2}) request_.topology.devices.push_back({host, 1 << 30});
    plan_.world_size = 6;
    plan_.local_world_size = 2;
    const auto hosts = request_.topology.hosts();
    const std::vector<Block> whole = {{0, 64}};
    plan_.tables = {LayOutTable(request_.tables[0], kColumnWise, WidthBlocks(64, 16),
                                std::vector{0, 1, 2, 3}, hosts),
                    LayOutTable(request_.tables[1], kTableWise, whole, std::vector{4}, hosts),
                    LayOutTable(request_.tables[2], kTableRowWise, whole, std::vector{0}, hosts)};
  }

  TableRule& Rule(std::vector<int> tables) {
    constraints_.tables.emplace_back();
    constraints_.tables.back().tables = std::move(tables);
    return constraints_.tables.back();
  }
  std::vector<Violation> Check() const { return CheckPlan(request_, plan_); }

  PlanRequest request_;
  Plan plan_;
  Constraints& constraints_ = request_.constraints;
};

TEST_F(CheckConstraintsTest, WhatMayNotChangePlace) {
  Migration& migration = request_.migration.emplace();
  migration.previous = plan_;
  migration.only_types = {kTableWise, kColumnWise};
  EXPECT_THAT(Check(), IsEmpty());

  // Cuts and ranks of the first two may change.
  const auto hosts = request_.topology.hosts();
  plan_.tables[0] =
      LayOutTable(request_.tables[0], kColumnWise, WidthBlocks(64, 32), std::vector{4, 5}, hosts);
  plan_.tables[1].shards[0].rank = 0;
  std::swap(plan_.tables[0].shards[0].rank, plan_.tables[0].shards[1].rank);
  EXPECT_THAT(Check(), IsEmpty());

  const std::vector<Block> whole = {{0, 64}};
  plan_.tables[0] = LayOutTable(request_.tables[0], kTableWise, whole, std::vector{0}, hosts);
  plan_.tables[2] = LayOutTable(request_.tables[2], kTableRowWise, whole, std::vector{1}, hosts);
  EXPECT_THAT(Check(),
              ElementsAre(ViolationIs("plan.tables[0].sharding_type",
                                      "must stay column_wise as in migration.previous "
                                      "(migration.only_types), got table_wise"),
                          ViolationIs("plan.tables[2].shards",
                                      "must stay as in migration.previous: only tables that are "
                                      "table_wise, column_wise there may change place "
                                      "(migration.only_types)")));
  migration.previous.tables[2].shards.back().rows += 1;  // of another size: new
  migration.previous.tables[0].name = "gone";
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(CheckConstraintsTest, ShardingTypes) {
  constraints_.sharding_types = {kTableWise, kColumnWise};
  Rule({2}).sharding_types = {kTableRowWise};
  EXPECT_THAT(Check(), IsEmpty());
  Rule({0, 2}).sharding_types = {kRowWise, kColumnWise};
  EXPECT_THAT(Check(), ElementsAre(ViolationIs("plan.tables[2].sharding_type",
                                               "must be one of row_wise, column_wise "
                                               "(constraints.tables[1].sharding_types), got "
                                               "table_row_wise")));
  constraints_.tables.clear();
  EXPECT_THAT(Check(),
              ElementsAre(ViolationIs("plan.tables[2].sharding_type",
                                      "(constraints.sharding_types), got table_row_wise")));
}

TEST_F(CheckConstraintsTest, ComputeKernels) {
  Rule({0, 1, 2}).compute_kernels = {ComputeKernel::kFused};
  EXPECT_THAT(Check(), IsEmpty());
  Rule({1}).compute_kernels = {ComputeKernel::kDense};
  EXPECT_THAT(Check(),
              ElementsAre(ViolationIs("plan.tables[1].compute_kernel",
                                      "dense (constraints.tables[1].compute_kernels), got fused")));
}

TEST_F(CheckConstraintsTest, Ranks) {
  Rule({0}).ranks = {0, 1, 2, 3};
  Rule({0, 2}).forbidden_ranks = {4, 5};
  EXPECT_THAT(Check(), IsEmpty());
  Rule({0}).ranks = {0, 1, 2};
  Rule({2}).forbidden_ranks = {1};
  EXPECT_THAT(
      Check(),
      ElementsAre(ViolationIs("plan.tables[0].shards[3].rank",
                              "must be one of 0, 1, 2 (constraints.tables[2].ranks), got 3"),
                  ViolationIs("plan.tables[2].shards[1].rank",
                              "must not be 1 (constraints.tables[3].forbidden_ranks)")));
}

TEST_F(CheckConstraintsTest, Hosts) {
  Rule({1}).hosts = {2};
  Rule({0, 2}).forbidden_hosts = {2};
  EXPECT_THAT(Check(), IsEmpty());
  Rule({1}).hosts = {0, 1};
  Rule({0}).forbidden_hosts = {0};
  EXPECT_THAT(Check(),
              ElementsAre(ViolationIs("plan.tables[0].shards[0].rank",
                                      "(constraints.tables[3].forbidden_hosts), got 0"),
                          ViolationIs("plan.tables[0].shards[1].rank",
                                      "(constraints.tables[3].forbidden_hosts), got 1"),
                          ViolationIs("plan.tables[1].shards[0].rank",
                                      "must be on one of hosts 0, 1 (constraints.tables[2].hosts), "
                                      "got 4 of host 2")));
}

TEST_F(CheckConstraintsTest, ShardsOfATable) {
  constraints_.max_shards_per_table = 4;
  Rule({2}).max_shards = 2;
  EXPECT_THAT(Check(), IsEmpty());
  constraints_.max_shards_per_table = 3;
  Rule({2}).max_shards = 1;
  EXPECT_THAT(
      Check(),
      ElementsAre(ViolationIs("plan.tables[0].shards",
                              "must be at most 3 (constraints.max_shards_per_table), got 4"),
                  ViolationIs("plan.tables[2].shards",
                              "must be at most 1 (constraints.tables[1].max_shards), got 2")));
}

TEST_F(CheckConstraintsTest, ColumnWidth) {
  constraints_.min_column_width = 16;
  Rule({1, 2}).min_column_width = 100;  // more than they have: whole is enough
  EXPECT_THAT(Check(), IsEmpty());
  Rule({0}).min_column_width = 20;
  EXPECT_THAT(Check(), SizeIs(4));
  constraints_.tables.clear();
  constraints_.min_column_width = 17;
  EXPECT_THAT(Check().front(),
              ViolationIs("plan.tables[0].shards[0].cols",
                          "must be at least 17 (constraints.min_column_width), got 16"));
}

TEST_F(CheckConstraintsTest, DistinctRanks) {
  Rule({0, 1, 2}).distinct_ranks = true;
  EXPECT_THAT(Check(), IsEmpty());
  plan_.tables[0].shards[2].rank = 0;
  EXPECT_THAT(Check(), ElementsAre(ViolationIs("plan.tables[0].shards[2].rank",
                                               "must be another than that of shards[0] "
                                               "(constraints.tables[0].distinct_ranks), got 0")));
}

TEST_F(CheckConstraintsTest, TorchRecsColumnRule) {
  constraints_.column_rule = ColumnRule::kTorchRec;
  constraints_.min_column_width = 16;
  EXPECT_THAT(Check(), IsEmpty());
  constraints_.min_column_width = 8;
  EXPECT_THAT(Check(), SizeIs(4));
  constraints_.min_column_width = 0;
  EXPECT_THAT(Check().front(), ViolationIs("plan.tables[0].shards[0].cols",
                                           "must be 64, TorchRec's one block width "
                                           "(constraints.column_rule), got 16"));
}

TEST_F(CheckConstraintsTest, ColumnsThatTheTrainersKernelsTake) {
  const auto hosts = request_.topology.hosts();
  request_.tables[1].embedding_dim = 3840;
  const auto lay_out = [&](ShardingType type, std::int64_t width, std::vector<int> places) {
    plan_.tables[1] =
        LayOutTable(request_.tables[1], type, WidthBlocks(3840, width), places, hosts);
  };
  lay_out(kTableWise, 3840, {4});
  EXPECT_THAT(Check(), IsEmpty());
  request_.topology.compute_device = ComputeDevice::kCpu;
  EXPECT_THAT(Check(), IsEmpty());
  request_.topology.compute_device = ComputeDevice::kCuda;
  EXPECT_THAT(Check(), ElementsAre(ViolationIs(
                           "plan.tables[1].shards[0].cols",
                           "must be at most 2048, which is what FBGEMM on CUDA devices takes "
                           "(topology.compute_device), got 3840")));
  request_.search.strategy = "memory_balanced";  // of another trainer
  EXPECT_THAT(Check(), IsEmpty());
  request_.search.strategy = "refine";
  lay_out(kRowWise, 3840, {});
  EXPECT_THAT(Check(), SizeIs(6));  // a shard each
  lay_out(kColumnWise, 1920, {4, 4});
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(CheckConstraintsTest, CoLocated) {
  plan_.tables[0].shards[2].rank = 1;
  plan_.tables[0].shards[3].rank = 0;
  constraints_.colocate = {{{0, 2}, GroupLevel::kHost}};
  EXPECT_THAT(Check(), IsEmpty());
  constraints_.colocate.push_back({{1, 2}, GroupLevel::kRank});
  EXPECT_THAT(
      Check(),
      ElementsAre(ViolationIs("plan.tables[2].shards[0].rank",
                              "must be on rank 4, where 't1' is (constraints.colocate[1]), got 0"),
                  ViolationIs("plan.tables[2].shards[1].rank", "got 1")));
}

TEST_F(CheckConstraintsTest, Separate) {
  constraints_.separate = {{{0, 1}, GroupLevel::kHost}, {{1, 2}, GroupLevel::kRank}};
  EXPECT_THAT(Check(), IsEmpty());
  constraints_.separate.push_back({{0, 2}, GroupLevel::kRank});
  EXPECT_THAT(
      Check(),
      ElementsAre(
          ViolationIs("plan.tables[2].shards[0].rank",
                      "must not be on rank 0, where 't0' is (constraints.separate[2]), got 0"),
          ViolationIs("plan.tables[2].shards[1].rank", "got 1")));
}

TEST_F(CheckConstraintsTest, LimitsOfARank) {
  constraints_.max_shards_per_rank = 2;
  constraints_.max_tables_per_rank = 2;
  EXPECT_THAT(Check(), IsEmpty());
  constraints_.max_shards_per_rank = 1;
  EXPECT_THAT(Check(), ElementsAre(ViolationIs("plan.tables",
                                               "rank 0 has 2 shards, must have at most 1 "
                                               "(constraints.max_shards_per_rank)"),
                                   ViolationIs("plan.tables", "rank 1 has 2 shards")));
  constraints_.max_shards_per_rank = 3;
  constraints_.max_tables_per_rank = 1;
  EXPECT_THAT(Check(), SizeIs(2));
  plan_.tables[0].shards[1].rank = plan_.tables[0].shards[0].rank = 5;
  EXPECT_THAT(Check(), IsEmpty());  // two shards of one table there
}

TEST_F(CheckConstraintsTest, TheMigrationBudget) {
  request_.migration.emplace();
  request_.migration->previous = plan_;
  request_.migration->budget_bytes = 0;
  EXPECT_THAT(Check(), IsEmpty());
  plan_.tables[0].shards[1].rank = 5;
  request_.migration->budget_bytes = 100 * 16 * 4;
  EXPECT_THAT(Check(), IsEmpty());
  request_.migration->budget_bytes = 100 * 16 * 4 - 1;
  EXPECT_THAT(Check(), ElementsAre(ViolationIs("plan.tables", "moves 6400 bytes")));
  request_.migration->budget_bytes.reset();
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(CheckConstraintsTest, BrokenPlansBreakConstraintsToo) {
  constraints_.colocate = {{{0, 1}, GroupLevel::kRank}};
  constraints_.max_shards_per_rank = 1;
  Rule({0, 1, 2}).hosts = {0};
  plan_.tables[0].shards[0].rank = -7;
  plan_.tables[0].shards[1].rank = 1 << 30;
  plan_.tables[1].shards.clear();
  plan_.tables[2].name = "stranger";
  EXPECT_THAT(Check(), SizeIs(8));
}

}  // namespace
}  // namespace neuroshard
