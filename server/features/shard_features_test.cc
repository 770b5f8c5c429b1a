#include "server/features/shard_features.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace neuroshard
