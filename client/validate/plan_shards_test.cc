#include "client/validate/plan_shards.h"

#include <gmock/gmock.h>

#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::StatusIs;

// One table of 5 rows x 8 columns, 10 ids a sample, on four ranks.
class PlanShardsTest : public ::testing::Test {
 protected:
  PlanShardsTest() {
    request_.topology.devices.assign(4, Device{0, 1'000'000});
    Table table;
    table.name = "t";
    table.num_embeddings = 5;
    table.embedding_dim = 8;
    table.pooling_factor = 10;
    request_.tables = {table};
  }

  Plan PlanOf(ShardingType type, std::vector<Shard> shards) const {
    Plan plan;
    plan.world_size = 4;
    plan.tables = {{"t", "", type, ComputeKernel::kFused, std::move(shards)}};
    return plan;
  }

  PlanRequest request_;
};

TEST_F(PlanShardsTest, ARowCutLooksUpItsShareOfTheIdsAndAddsUpAllItsColumns) {
  const Plan plan = PlanOf(ShardingType::kRowWise,
                           {{0, 2, 0, 8, 0}, {2, 2, 0, 8, 1}, {4, 1, 0, 8, 2}, {5, 0, 0, 8, 3}});
  const auto ranks = ShardsByRank(request_, plan);
  ASSERT_THAT(ranks, IsOk());
  ASSERT_EQ((*ranks)[1].shards.size(), 1u);
  EXPECT_EQ((*ranks)[1].shards[0].rows, 2);
  EXPECT_DOUBLE_EQ((*ranks)[1].shards[0].pooling_factor, 4);
  EXPECT_DOUBLE_EQ((*ranks)[2].shards[0].pooling_factor, 2);
  EXPECT_THAT((*ranks)[3].shards, IsEmpty()) << "nothing to look up";
  for (const RankShards& rank : *ranks) {
    EXPECT_EQ(rank.cut_row_columns, 8);
    EXPECT_EQ(rank.dim_sum, 0);
  }
}

TEST_F(PlanShardsTest, AGridIsCutBothWays) {
  const auto ranks = ShardsByRank(
      request_, PlanOf(ShardingType::kGridShard,
                       {{0, 3, 0, 4, 0}, {3, 2, 0, 4, 1}, {0, 3, 4, 4, 2}, {3, 2, 4, 4, 3}}));
  ASSERT_THAT(ranks, IsOk());
  EXPECT_EQ((*ranks)[3].shards[0].cols, 4);
  EXPECT_DOUBLE_EQ((*ranks)[3].shards[0].pooling_factor, 4);
  EXPECT_EQ((*ranks)[3].cut_row_columns, 4);
}

TEST_F(PlanShardsTest, ColumnsSeeAllIds) {
  const Plan plan = PlanOf(ShardingType::kColumnWise, {{0, 5, 0, 4, 0}, {0, 5, 4, 4, 0}});
  const auto ranks = ShardsByRank(request_, plan);
  ASSERT_THAT(ranks, IsOk());
  EXPECT_DOUBLE_EQ((*ranks)[0].shards[1].pooling_factor, 10);
  EXPECT_EQ((*ranks)[0].dim_sum, 8);
  EXPECT_EQ((*ranks)[0].cut_row_columns, 0);
}

TEST_F(PlanShardsTest, AReplicaIsLookedUpApartAndOnlyItsGradientsAreExchanged) {
  const Plan plan = PlanOf(ShardingType::kDataParallel, {{0, 5, 0, 8, 0}, {0, 5, 0, 8, 1}});
  const auto ranks = ShardsByRank(request_, plan);
  ASSERT_THAT(ranks, IsOk());
  EXPECT_THAT((*ranks)[1].shards, IsEmpty());
  ASSERT_EQ((*ranks)[1].replicas.size(), 1u);
  EXPECT_DOUBLE_EQ((*ranks)[1].replicas[0].pooling_factor, 10);
  EXPECT_EQ((*ranks)[1].dim_sum, 0);
  EXPECT_EQ((*ranks)[1].replica_values(), 40);
}

TEST_F(PlanShardsTest, IdsOfAnUnpooledTableAreNotPooled) {
  request_.tables[0].kind = TableKind::kEmbedding;
  request_.tables[0].weighted = true;
  const auto ranks = ShardsByRank(request_, PlanOf(ShardingType::kTableWise, {{0, 5, 0, 8, 0}}));
  ASSERT_THAT(ranks, IsOk());
  EXPECT_EQ((*ranks)[0].shards[0].pooling_mode, PoolingMode::kNone);
  EXPECT_FALSE((*ranks)[0].shards[0].weighted);
}

TEST_F(PlanShardsTest, IdsGoToEveryShardOfTheirTableButToNoReplica) {
  request_.tables[0].features = {"f", "g"};
  const auto columns =
      ShardsByRank(request_, PlanOf(ShardingType::kColumnWise, {{0, 5, 0, 4, 0}, {0, 5, 4, 4, 0}}));
  ASSERT_THAT(columns, IsOk());
  EXPECT_EQ((*columns)[0].ids.whole_features, 4);
  EXPECT_EQ((*columns)[0].ids.whole_ids, 20);
  EXPECT_EQ((*columns)[0].ids.cut_features, 0);
  EXPECT_EQ((*columns)[1].ids.whole_features, 0);
  request_.tables[0].weighted = true;
  const auto rows =
      ShardsByRank(request_, PlanOf(ShardingType::kRowWise, {{0, 3, 0, 8, 0}, {3, 2, 0, 8, 1}}));
  ASSERT_THAT(rows, IsOk());
  EXPECT_EQ((*rows)[0].ids.cut_features, 0);
  EXPECT_EQ((*rows)[0].weighted_ids.cut_features, 2);
  EXPECT_DOUBLE_EQ((*rows)[0].weighted_ids.cut_ids, 6);
  EXPECT_DOUBLE_EQ((*rows)[1].weighted_ids.cut_ids, 4);
  EXPECT_EQ((*rows)[0].weighted_ids.whole_ids, 0);
  const auto replicas = ShardsByRank(
      request_, PlanOf(ShardingType::kDataParallel, {{0, 5, 0, 8, 0}, {0, 5, 0, 8, 1}}));
  ASSERT_THAT(replicas, IsOk());
  EXPECT_EQ((*replicas)[0].weighted_ids.whole_features, 0);
}

TEST_F(PlanShardsTest, RowsInHostMemoryStayThere) {
  Plan plan = PlanOf(ShardingType::kTableWise, {{0, 5, 0, 8, 0}});
  plan.tables[0].compute_kernel = ComputeKernel::kFusedUvmCaching;
  plan.tables[0].cache_load_factor = 0.25;
  const auto ranks = ShardsByRank(request_, plan);
  ASSERT_THAT(ranks, IsOk());
  EXPECT_EQ((*ranks)[0].shards[0].compute_kernel, ComputeKernel::kFusedUvmCaching);
  EXPECT_EQ((*ranks)[0].shards[0].cache_load_factor, 0.25);
  EXPECT_THAT(NotMeasuredOf(request_, plan), IsEmpty());
  plan.tables[0].compute_kernel = ComputeKernel::kDense;
  EXPECT_EQ((*ShardsByRank(request_, plan))[0].shards[0].compute_kernel, ComputeKernel::kFused);
}

TEST_F(PlanShardsTest, WhatWorkersDoOtherwiseIsSaidOnceEach) {
  Plan plan = PlanOf(ShardingType::kTableWise, {{0, 5, 0, 8, 0}});
  request_.quantized_comms.forward_dtype = DataType::kFp32;
  EXPECT_THAT(NotMeasuredOf(request_, plan), IsEmpty());
  plan.tables[0].compute_kernel = ComputeKernel::kOffload;
  request_.tables[0].kind = TableKind::kEmbedding;
  request_.tables[0].output_dtype = DataType::kFp16;
  request_.tables[0].num_poolings = {2};
  request_.quantized_comms.backward_dtype = DataType::kFp8;
  request_.topology.devices[1].compute_speed = 2;
  EXPECT_THAT(
      NotMeasuredOf(request_, plan),
      ElementsAre(HasSubstr("offloaded"), HasSubstr("output_dtype"), HasSubstr("num_poolings"),
                  HasSubstr("quantized_comms in fp8"), HasSubstr("compute_speed")));
  plan.tables[0].compute_kernel = ComputeKernel::kKeyValue;
  EXPECT_THAT(NotMeasuredOf(request_, plan).front(), HasSubstr("tables on SSD (key_value)"));
  plan.tables[0].compute_kernel = ComputeKernel::kOffload;
  request_.topology.devices.resize(1);
  EXPECT_THAT(
      NotMeasuredOf(request_, plan),
      ElementsAre(HasSubstr("offloaded"), HasSubstr("output_dtype"), HasSubstr("num_poolings")))
      << "one rank exchanges nothing";
}

TEST_F(PlanShardsTest, CastsAreOfWholeRowsAlone) {
  request_.quantized_comms = {DataType::kFp16, DataType::kBf16};
  EXPECT_THAT(NotMeasuredOf(request_, PlanOf(ShardingType::kTableWise, {{0, 5, 0, 8, 0}})),
              IsEmpty());
  const Plan cut = PlanOf(ShardingType::kRowWise, {{0, 3, 0, 8, 0}, {3, 2, 0, 8, 1}});
  EXPECT_THAT(NotMeasuredOf(request_, cut), ElementsAre(HasSubstr("cut in rows")));
  request_.tables[0].kind = TableKind::kEmbedding;
  EXPECT_THAT(NotMeasuredOf(request_, cut), IsEmpty());
}

// A vector for each id, in an all-to-all whatever is cut.
TEST_F(PlanShardsTest, UnpooledTablesExchangeAVectorForEachId) {
  request_.tables[0].kind = TableKind::kEmbedding;
  request_.tables[0].pooling_factor = 2.5;
  const auto whole = ShardsByRank(request_, PlanOf(ShardingType::kTableWise, {{0, 5, 0, 8, 0}}));
  ASSERT_THAT(whole, IsOk());
  EXPECT_EQ((*whole)[0].dim_sum, 20);
  const auto cut =
      ShardsByRank(request_, PlanOf(ShardingType::kRowWise, {{0, 3, 0, 8, 0}, {3, 2, 0, 8, 1}}));
  ASSERT_THAT(cut, IsOk());
  EXPECT_EQ((*cut)[0].dim_sum, 12);
  EXPECT_EQ((*cut)[1].dim_sum, 8);
  EXPECT_EQ((*cut)[0].cut_row_columns, 0);
}

TEST_F(PlanShardsTest, ShardsThatAreNotOfTheirTableAreRefused) {
  EXPECT_THAT(ShardsByRank(request_, PlanOf(ShardingType::kTableWise, {{0, 4, 0, 8, 0}})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("all 5 rows")));
  EXPECT_THAT(
      ShardsByRank(request_, PlanOf(ShardingType::kRowWise, {{0, 3, 0, 8, 0}, {3, 3, 0, 8, 1}})),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("within the table's 5 rows")));
}

}  // namespace
}  // namespace neuroshard
