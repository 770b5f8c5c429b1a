#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "client/sweep/sampling.h"

namespace neuroshard {
namespace {

std::vector<Table> SomeTables() {
  std::vector<Table> tables;
  for (int i = 0; i < 40; ++i) {
    Table table;
    table.name = fmt::format("table_{}", i);
    table.num_embeddings = 100 << (i % 15);
    table.pooling_factor = 1.5 * i;
    table.reuse_histogram[static_cast<std::size_t>(i % kReuseBins)] = 1.0;
    tables.push_back(table);
  }
  return tables;
}

ComputeSweepConfig SmallComputeConfig() {
  ComputeSweepConfig config;
  config.seed = 7;
  config.num_samples = 300;
  config.max_weights_bytes = 256 * kMiB;
  config.conditions.batch_sizes = {512};
  return config;
}

std::int64_t WeightsBytes(const ComputeSample& sample) {
  std::int64_t bytes = 0;
  for (const MeasuredShard& shard : sample.shards) bytes += shard.rows * shard.cols * 4;
  return bytes;
}

TEST(ComputeSamplingTest, EverySampleIsWithinTheLimits) {
  const ComputeSweepConfig config = SmallComputeConfig();
  const auto samples = MakeComputeSamples(config, SomeTables());
  ASSERT_TRUE(samples.ok()) << samples.status();
  ASSERT_EQ(samples->size(), 300u);
  for (const ComputeSample& sample : *samples) {
    EXPECT_GE(sample.shards.size(), 1u);
    EXPECT_LE(sample.shards.size(), 15u);
    EXPECT_LE(WeightsBytes(sample), config.max_weights_bytes) << sample.sample_id;
    EXPECT_EQ(sample.batch_size, 512);
    std::set<std::pair<std::string, std::int64_t>> distinct;
    for (const MeasuredShard& shard : sample.shards) {
      EXPECT_THAT(config.dims, testing::Contains(shard.cols));
      distinct.emplace(shard.table, shard.cols);
    }
    EXPECT_EQ(distinct.size(), sample.shards.size())
        << "an augmented table twice in " << sample.sample_id;
  }
}

TEST(ComputeSamplingTest, ShardsCarryTheStatisticsOfTheirTable) {
  const std::vector<Table> tables = SomeTables();
  const auto samples = MakeComputeSamples(SmallComputeConfig(), tables);
  ASSERT_TRUE(samples.ok());
  for (const MeasuredShard& shard : samples->front().shards) {
    const Table& table = tables[static_cast<std::size_t>(std::stoi(shard.table.substr(6)))];
    EXPECT_EQ(shard.rows, table.num_embeddings);
    EXPECT_EQ(shard.pooling_factor, table.pooling_factor);
    EXPECT_EQ(shard.reuse_histogram, table.reuse_histogram);
  }
}

TEST(ComputeSamplingTest, SameConfigSameSamplesAndOtherSeedOthers) {
  ComputeSweepConfig config = SmallComputeConfig();
  const auto first = MakeComputeSamples(config, SomeTables());
  const auto again = MakeComputeSamples(config, SomeTables());
  config.seed = 8;
  const auto other = MakeComputeSamples(config, SomeTables());
  ASSERT_TRUE(first.ok() && again.ok() && other.ok());
  EXPECT_EQ(*first, *again);
  EXPECT_NE(*first, *other);
}

TEST(ComputeSamplingTest, ASampleDoesNotDependOnHowManyThereAre) {
  ComputeSweepConfig config = SmallComputeConfig();
  const auto many = MakeComputeSamples(config, SomeTables());
  config.num_samples = 10;
  const auto few = MakeComputeSamples(config, SomeTables());
  ASSERT_TRUE(many.ok() && few.ok());
  EXPECT_THAT(std::vector<ComputeSample>(many->begin(), many->begin() + 10),
              testing::ElementsAreArray(*few));
}

TEST(ComputeSamplingTest, IdsAreUniqueAndReadable) {
  const auto samples = MakeComputeSamples(SmallComputeConfig(), SomeTables());
  ASSERT_TRUE(samples.ok());
  EXPECT_EQ((*samples)[0].sample_id, "c000000");
  EXPECT_EQ((*samples)[123].sample_id, "c000123");
}

TEST(ComputeSamplingTest, RepeatsAreTheSameSamplesInLaterPasses) {
  ComputeSweepConfig config = SmallComputeConfig();
  config.num_samples = 10;
  const auto once = MakeComputeSamples(config, SomeTables());
  config.repeats = 3;
  const auto thrice = MakeComputeSamples(config, SomeTables());
  ASSERT_TRUE(once.ok() && thrice.ok());
  ASSERT_EQ(thrice->size(), 30u);
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_EQ((*thrice)[i], (*once)[i]);
    ComputeSample second = (*thrice)[10 + i];
    EXPECT_EQ(second.sample_id, (*once)[i].sample_id + ".2");
    second.sample_id = (*once)[i].sample_id;
    EXPECT_EQ(second, (*once)[i]);
    EXPECT_EQ((*thrice)[20 + i].sample_id, (*once)[i].sample_id + ".3");
  }
}

TEST(ComputeSamplingTest, CandidatesAreMoreOfTheSameSamples) {
  ComputeSweepConfig config = SmallComputeConfig();
  config.num_samples = 10;
  config.repeats = 2;
  const auto plain = MakeComputeSamples(config, SomeTables());
  config.active_candidates = 4;
  const auto candidates = MakeCandidates(config, SomeTables());
  ASSERT_TRUE(plain.ok() && candidates.ok());
  ASSERT_EQ(candidates->size(), 40u);
  EXPECT_TRUE(std::equal(plain->begin(), plain->begin() + 10, candidates->begin()));
}

TEST(ComputeSamplingTest, EveryCountOfTablesOccurs) {
  const auto samples = MakeComputeSamples(SmallComputeConfig(), SomeTables());
  ASSERT_TRUE(samples.ok());
  std::set<std::size_t> counts;
  for (const ComputeSample& sample : *samples) counts.insert(sample.shards.size());
  EXPECT_EQ(counts.size(), 15u);
}

// All drawn after the tables, so that sweeps with and without them can be compared.
TEST(ComputeSamplingTest, ConditionsVaryBySampleAndLeaveTheTablesAlone) {
  ComputeSweepConfig config = SmallComputeConfig();
  const auto plain = MakeComputeSamples(config, SomeTables());
  config.conditions.batch_sizes = {256, 512, 1024};
  config.conditions.optimizers = {Optimizer::kSgd, Optimizer::kRowwiseAdagrad};
  config.conditions.weighted_share = 0.25;
  config.conditions.pooling_modes = {PoolingMode::kSum, PoolingMode::kMean};
  const auto varied = MakeComputeSamples(config, SomeTables());
  ASSERT_TRUE(plain.ok() && varied.ok());
  std::map<std::int64_t, int> batch_sizes;
  std::map<Optimizer, int> optimizers;
  std::map<PoolingMode, int> pooling_modes;
  int weighted = 0;
  for (std::size_t i = 0; i < varied->size(); ++i) {
    ComputeSample sample = (*varied)[i];
    const MeasuredShard first = sample.shards.front();
    ++batch_sizes[sample.batch_size];
    ++optimizers[sample.optimizer];
    ++pooling_modes[first.pooling_mode];
    if (first.weighted) ++weighted;
    for (MeasuredShard& shard : sample.shards) {
      EXPECT_EQ(shard.weighted, first.weighted);
      EXPECT_EQ(shard.pooling_mode, first.pooling_mode);
      shard.weighted = false;
      shard.pooling_mode = PoolingMode::kSum;
    }
    sample.batch_size = (*plain)[i].batch_size;
    sample.optimizer = (*plain)[i].optimizer;
    EXPECT_EQ(sample, (*plain)[i]);
  }
  // Of 300: far more than four standard deviations from none and from all.
  EXPECT_EQ(batch_sizes.size(), 3u);
  for (const auto& [batch_size, count] : batch_sizes) EXPECT_GT(count, 60) << batch_size;
  EXPECT_GT(std::min(optimizers[Optimizer::kSgd], optimizers[Optimizer::kRowwiseAdagrad]), 110);
  EXPECT_GT(std::min(pooling_modes[PoolingMode::kSum], pooling_modes[PoolingMode::kMean]), 110);
  EXPECT_GT(weighted, 45);
  EXPECT_LT(weighted, 110);
}

TEST(ComputeSamplingTest, OnlyCachesHaveLoadFactors) {
  ComputeSweepConfig config = SmallComputeConfig();
  config.conditions.compute_kernels = {ComputeKernel::kFused, ComputeKernel::kFusedUvm,
                                       ComputeKernel::kFusedUvmCaching};
  config.conditions.cache_load_factors = {0.1, 0.5};
  const auto samples = MakeComputeSamples(config, SomeTables());
  ASSERT_TRUE(samples.ok());
  std::map<std::pair<ComputeKernel, double>, int> counts;
  for (const ComputeSample& sample : *samples) {
    const MeasuredShard& first = sample.shards.front();
    ++counts[{first.compute_kernel, first.cache_load_factor}];
    for (const MeasuredShard& shard : sample.shards) {
      EXPECT_EQ(shard.compute_kernel, first.compute_kernel);
      EXPECT_EQ(shard.cache_load_factor, first.cache_load_factor);
    }
  }
  ASSERT_EQ(counts.size(), 4u);  // fused, fused_uvm and two caches
  EXPECT_GT((counts[{ComputeKernel::kFusedUvmCaching, 0.5}]), 20);
}

TEST(ComputeSamplingTest, WithoutPoolingNothingIsWeighted) {
  ComputeSweepConfig config = SmallComputeConfig();
  config.conditions.weighted_share = 1;
  config.conditions.pooling_modes = {PoolingMode::kNone};
  const auto samples = MakeComputeSamples(config, SomeTables());
  ASSERT_TRUE(samples.ok());
  for (const ComputeSample& sample : *samples) {
    for (const MeasuredShard& shard : sample.shards) {
      EXPECT_EQ(shard.pooling_mode, PoolingMode::kNone);
      EXPECT_FALSE(shard.weighted);
    }
  }
}

TEST(ComputeSamplingTest, ARowBlockHasItsShareOfRowsAndIds) {
  ComputeSweepConfig config = SmallComputeConfig();
  config.row_shares = {1.0, 0.25};
  const std::vector<Table> tables = SomeTables();
  const auto samples = MakeComputeSamples(config, tables);
  ASSERT_TRUE(samples.ok());
  int blocks = 0;
  int whole = 0;
  for (const ComputeSample& sample : *samples) {
    EXPECT_LE(WeightsBytes(sample), config.max_weights_bytes);
    for (const MeasuredShard& shard : sample.shards) {
      const Table& table = tables[static_cast<std::size_t>(std::stoi(shard.table.substr(6)))];
      if (shard.rows == table.num_embeddings) {
        ++whole;
        EXPECT_EQ(shard.pooling_factor, table.pooling_factor);
      } else {
        ++blocks;
        EXPECT_EQ(shard.rows, table.num_embeddings / 4);
        EXPECT_DOUBLE_EQ(shard.pooling_factor, table.pooling_factor / 4);
      }
    }
  }
  EXPECT_GT(blocks, 500);
  EXPECT_GT(whole, 500);
}

// A table that is too large whole is what rows are cut for.
TEST(ComputeSamplingTest, ATableThatFitsOnlyInBlocksIsMeasuredInBlocks) {
  ComputeSweepConfig config = SmallComputeConfig();
  config.num_samples = 20;
  config.max_tables = 1;
  config.dims = {4};
  config.row_shares = {1.0, 0.5, 0.125};
  config.max_weights_bytes = 1000 * 16 / 4;
  Table table;
  table.num_embeddings = 1000;
  const auto samples = MakeComputeSamples(config, {table});
  ASSERT_TRUE(samples.ok()) << samples.status();
  for (const ComputeSample& sample : *samples) EXPECT_EQ(sample.shards.front().rows, 125);
}

TEST(ComputeSamplingTest, LimitsThatNothingFitsAreRefused) {
  ComputeSweepConfig config = SmallComputeConfig();
  config.max_weights_bytes = 100;
  EXPECT_EQ(MakeComputeSamples(config, SomeTables()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ComputeSamplingTest, LimitsThatSingleTablesFitButNotTheMinimumAreRefused) {
  ComputeSweepConfig config = SmallComputeConfig();
  config.dims = {128};
  config.min_tables = 3;
  Table table;
  table.num_embeddings = 1000;
  config.max_weights_bytes = 1000 * 128 * 4 * 2;
  const std::vector<Table> tables(5, table);
  EXPECT_EQ(MakeComputeSamples(config, tables).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ComputeSamplingTest, RowsThatWouldOverflowDoNotFit) {
  ComputeSweepConfig config = SmallComputeConfig();
  Table table;
  table.num_embeddings = std::int64_t{1} << 62;
  EXPECT_FALSE(MakeComputeSamples(config, {table}).ok());
}

}  // namespace
}  // namespace neuroshard
