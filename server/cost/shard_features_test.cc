#include "server/cost/shard_features.h"

#include <gtest/gtest.h>

#include "common/domain/expected_lookups.h"
#include "common/domain/testing/reuse_histograms.h"

namespace neuroshard {
namespace {

TEST(ShardFeaturesTest, AColumnCutChangesOnlyTheColumns) {
  Table table;
  table.num_embeddings = 1000;
  table.embedding_dim = 64;
  table.pooling_factor = 3.5;
  table.reuse_histogram[2] = 1.0;
  table.weight_dtype = DataType::kFp16;
  table.pooling_mode = PoolingMode::kMean;
  table.weighted = true;

  const ShardFeatures half = FeaturesOf(table, {ShardingType::kColumnWise}, 1000, 32);

  EXPECT_EQ(half.rows, 1000);
  EXPECT_EQ(half.cols, 32);
  EXPECT_EQ(half.table_rows, 1000);
  EXPECT_EQ(half.layout.type, ShardingType::kColumnWise);
  EXPECT_EQ(half.pooling_factor, 3.5);
  EXPECT_EQ(half.reuse_histogram, table.reuse_histogram);
  EXPECT_EQ(half.weight_dtype, DataType::kFp16);
  EXPECT_EQ(half.pooling_mode, PoolingMode::kMean);
  EXPECT_TRUE(half.weighted);
}

TEST(ShardFeaturesTest, ARowBlockIsAsHotAsTheHottestWhereThatIsAskedFor) {
  Table table;
  table.num_embeddings = 100'000;
  table.embedding_dim = 4;
  table.pooling_factor = 8;
  table.reuse_histogram = ZipfReuseHistogram(100'000, 8 * 4096, 1.05);
  const ShardLayout rows_of_8 = {.type = ShardingType::kRowWise, .row_shards = 8};
  const auto hot = [&](const ShardLayout& layout) {
    return AsHottestRowBlock(FeaturesOf(table, layout, 12'500, 4), 4096);
  };
  EXPECT_EQ(hot(rows_of_8).pooling_factor, 8);
  table.hot_row_blocks = true;
  const double share =
      ExpectedHottestRowBlock(table.reuse_histogram, 100'000, 8 * 4096, 8).ids_share;
  EXPECT_GT(share, 1.5 / 8);
  EXPECT_DOUBLE_EQ(hot(rows_of_8).pooling_factor, 8 * 8 * share);
  EXPECT_EQ(hot(rows_of_8).vectors, (VectorCount{1, 0}));  // a bag has one vector however hot
  EXPECT_EQ(AsHottestRowBlock(hot(rows_of_8), 4096).pooling_factor, 8 * 8 * share);  // once
  EXPECT_EQ(hot({}).pooling_factor, 8);
  EXPECT_EQ(hot({.type = ShardingType::kRowWise, .row_shards = 1}).pooling_factor, 8);
  table.kind = TableKind::kEmbedding;
  EXPECT_DOUBLE_EQ(hot(rows_of_8).vectors.of_sample, 8 * 8 * share);
  table.pooling_factor = 0;
  EXPECT_EQ(hot(rows_of_8).pooling_factor, 0);
}

TEST(ShardFeaturesTest, AFeatureHasAPooledVectorWhereASampleHasIds) {
  Table table;
  table.num_embeddings = 10;
  table.embedding_dim = 4;
  const auto vectors = [&table] { return FeaturesOf(table, {}, 10, 4).vectors.Of(1); };
  table.pooling_factor = 0.5;
  EXPECT_EQ(vectors(), 0.5);
  table.features = {"a", "b", "c"};
  table.pooling_factor = 2;
  EXPECT_EQ(vectors(), 2);  // 2 / 3 each
  table.pooling_factor = 60;
  EXPECT_EQ(vectors(), 3);
  table.pooling_factors = {0.25, 58, 1.75};
  EXPECT_EQ(vectors(), 2.25);
}

TEST(ShardFeaturesTest, BagsAndBatchesOfFeaturesGiveVectors) {
  Table table;
  table.features = {"a", "b"};
  table.pooling_factors = {0.5, 3};
  table.num_poolings = {4, 2};
  EXPECT_EQ(FeaturesOf(table, {}, 1, 4).vectors, (VectorCount{4, 0}));
  table.feature_batch_sizes = {100, 10};
  EXPECT_EQ(FeaturesOf(table, {}, 1, 4).vectors, (VectorCount{0, 220}));
  table.num_poolings.clear();
  EXPECT_EQ(FeaturesOf(table, {}, 1, 4).vectors, (VectorCount{0, 60}));
  EXPECT_FALSE(FeaturesOf(table, {}, 1, 4).unpooled);
  table.kind = TableKind::kEmbedding;
  table.pooling_factor = 2.5;
  EXPECT_EQ(FeaturesOf(table, {}, 1, 4).vectors, (VectorCount{2.5, 0}));
  EXPECT_TRUE(FeaturesOf(table, {}, 1, 4).unpooled);
}

TEST(ShardFeaturesTest, BagsOfFeaturesAddUp) {
  Table table;
  table.num_embeddings = 10;
  table.embedding_dim = 4;
  table.features = {"a", "b"};
  table.pooling_factors = {5, 1};
  const auto bags = [&table] { return FeaturesOf(table, {}, 10, 4).bags; };
  EXPECT_EQ(bags(), VectorCount());  // as measured
  EXPECT_FALSE(FeaturesOf(table, {}, 10, 4).states_bags);
  table.num_poolings = {1, 3};
  EXPECT_EQ(bags(), (VectorCount{4, 0}));
  table.feature_batch_sizes = {100, 10};
  EXPECT_EQ(bags(), (VectorCount{0, 130}));
  EXPECT_TRUE(FeaturesOf(table, {}, 10, 4).states_bags);
}

TEST(ShardFeaturesTest, AMeasuredShardIsAWholeTable) {
  MeasuredShard shard;
  shard.rows = 10;
  shard.cols = 8;
  shard.pooling_factor = 3;
  shard.reuse_histogram[4] = 1;
  shard.weight_dtype = DataType::kBf16;
  shard.weighted = true;
  const ShardFeatures features = FeaturesOf(shard);
  EXPECT_EQ(features.rows, 10);
  EXPECT_EQ(features.table_rows, 10);
  EXPECT_EQ(features.cols, 8);
  EXPECT_EQ(features.pooling_factor, 3);
  EXPECT_EQ(features.reuse_histogram, shard.reuse_histogram);
  EXPECT_EQ(features.weight_dtype, DataType::kBf16);
  EXPECT_TRUE(features.weighted);
  EXPECT_EQ(features.layout.type, ShardingType::kTableWise);
}

}  // namespace
}  // namespace neuroshard
