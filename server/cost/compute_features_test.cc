#include "server/cost/compute_features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "common/domain/expected_lookups.h"

namespace neuroshard {
namespace {

using ::testing::DoubleNear;

std::map<std::string, double> Named(const PricingConditions& conditions, const ShardFeatures& shard,
                                    double cache_bytes) {
  std::vector<double> values(ComputeFeatureNames().size());
  ComputeFeaturesOf(conditions, shard, cache_bytes, values);
  std::map<std::string, double> named;
  for (std::size_t i = 0; i < values.size(); ++i) {
    named[std::string(ComputeFeatureNames()[i])] = values[i];
  }
  return named;
}

// 100 samples of 5 ids in a table of 1,000 x 16, bf16; half of the rows come once, half about 3
// times.
ShardFeatures SomeShard() {
  ShardFeatures shard;
  shard.rows = 1000;
  shard.table_rows = 1000;
  shard.cols = 16;
  shard.pooling_factor = 5;
  shard.reuse_histogram[0] = 0.5;
  shard.reuse_histogram[2] = 0.5;
  shard.weight_dtype = DataType::kBf16;
  shard.weighted = true;
  return shard;
}

PricingConditions SomeConditions() {
  PricingConditions conditions;
  conditions.global_batch_size = 100;
  conditions.optimizer = Optimizer::kRowwiseAdagrad;
  return conditions;
}

TEST(ComputeFeaturesTest, AreWhatTheirNamesSay) {
  auto named = Named(SomeConditions(), SomeShard(), 4000);
  EXPECT_EQ(named["bin_0"], 0.5);
  EXPECT_EQ(named["bin_2"], 0.5);
  EXPECT_EQ(named["bin_10"], 0);
  const std::map<std::string, double> logs = {
      {"log_dim", 16},
      {"log_pooling_factor", 5},
      {"log_rows", 1000},
      {"log_batch", 100},
      {"log_lookups", 500},
      {"log_unique_rows", 250},  // (1 + 3) / 2 = 2 ids a row
      {"log_lookup_bytes", 500 * 32},
      {"log_unique_bytes", 250 * 32},
      {"log_output_bytes", 4 * 100 * 16},
      {"log_weight_bytes", 1000 * 32}};
  for (const auto& [name, value] : logs) {
    EXPECT_THAT(named[name], DoubleNear(std::log(1 + value), 1e-12)) << name;
  }
  EXPECT_EQ(named["cache_share"], 0.5);
  EXPECT_EQ(named["element_bytes"], 2);
  EXPECT_EQ(named["weighted"], 1);
  EXPECT_EQ(named["mean_pooling"], 0);
  EXPECT_EQ(named["optimizer_sgd"], 0);
  EXPECT_EQ(named["optimizer_rowwise_adagrad"], 1);
  EXPECT_EQ(Named(SomeConditions(), SomeShard(), 0)["cache_share"], 1);
  EXPECT_EQ(ComputeFeatureIndex("log_dim"), 17u);
  EXPECT_EQ(ComputeFeatureIndex("dim"), std::nullopt);
}

// But none, which networks never see: they price training.
TEST(ComputeFeaturesTest, EveryOptimizerHasAWordOfItsOwn) {
  for (const auto& optimizer : kWords<Optimizer>) {
    if (optimizer.value == Optimizer::kNone) continue;
    PricingConditions conditions = SomeConditions();
    conditions.optimizer = optimizer.value;
    auto named = Named(conditions, SomeShard(), 0);
    for (const auto& word : kWords<Optimizer>) {
      if (word.value == Optimizer::kNone) continue;
      const std::string feature = "optimizer_" + std::string(word.text);
      ASSERT_EQ(named.count(feature), 1U) << feature;
      EXPECT_EQ(named[feature], word.value == optimizer.value ? 1 : 0) << feature;
    }
  }
}

TEST(ComputeFeaturesTest, WithoutPoolingEveryIdGivesAVector) {
  ShardFeatures shard = SomeShard();
  EXPECT_EQ(Named(SomeConditions(), shard, 0)["unpooled"], 0);
  shard.pooling_mode = PoolingMode::kNone;
  auto named = Named(SomeConditions(), shard, 0);
  EXPECT_EQ(named["unpooled"], 1);
  EXPECT_EQ(named["log_missed_rows"], 0);
  EXPECT_EQ(named["mean_pooling"], 0);
  EXPECT_THAT(named["log_output_bytes"], DoubleNear(std::log(1 + 4 * 500 * 16), 1e-12));
}

TEST(ComputeFeaturesTest, ABlockOfRowsHasItsShareOfTheIds) {
  ShardFeatures shard = SomeShard();
  shard.rows = 250;
  shard.layout = {ShardingType::kRowWise, ComputeKernel::kFused, 4};
  auto named = Named(SomeConditions(), shard, 0);
  EXPECT_THAT(named["log_lookups"], DoubleNear(std::log(126), 1e-12));
  EXPECT_THAT(named["log_unique_rows"], DoubleNear(std::log(63.5), 1e-12));
}

TEST(ComputeFeaturesTest, AReplicaIsATableAtItsRanksPartOfTheBatch) {
  ShardFeatures replica = SomeShard();
  replica.layout = {ShardingType::kDataParallel, ComputeKernel::kDense, 4};
  PricingConditions four_ranks = SomeConditions();
  four_ranks.num_ranks = 4;
  PricingConditions a_quarter = SomeConditions();
  a_quarter.global_batch_size = 25;
  EXPECT_EQ(Named(four_ranks, replica, 4000), Named(a_quarter, SomeShard(), 4000));
}

TEST(ComputeFeaturesTest, NoMoreRowsAreLookedUpThanThereAre) {
  ShardFeatures shard = SomeShard();
  shard.rows = shard.table_rows = 7;
  EXPECT_THAT(Named(SomeConditions(), shard, 0)["log_unique_rows"], DoubleNear(std::log(8), 1e-12));
}

TEST(ComputeFeaturesTest, AreFiniteForTheLargestRequestsAndForNothing) {
  ShardFeatures shard;
  for (const auto& [name, value] : Named(PricingConditions(), shard, 0)) {
    EXPECT_TRUE(std::isfinite(value)) << name;
  }
  EXPECT_EQ(MeanIdCount(shard.reuse_histogram), 1);
  shard.rows = shard.table_rows = std::int64_t{1} << 48;
  shard.cols = 65536;
  shard.pooling_factor = 1e6;
  PricingConditions conditions;
  conditions.global_batch_size = 1 << 30;
  for (const auto& [name, value] : Named(conditions, shard, 1e12)) {
    EXPECT_TRUE(std::isfinite(value)) << name;
  }
}

TEST(ComputeFeaturesTest, RowsInHostMemoryAreThoseThatACacheMisses) {
  ShardFeatures shard = SomeShard();
  shard.layout.kernel = ComputeKernel::kFusedUvm;
  auto uvm = Named(SomeConditions(), shard, 0);
  EXPECT_EQ(uvm["fused_uvm"], 1);
  EXPECT_EQ(uvm["fused_uvm_caching"], 0);
  const CacheHits none = ExpectedCacheHits(shard.reuse_histogram, 1000, 500, 0);
  EXPECT_DOUBLE_EQ(uvm["log_missed_rows"], std::log1p(none.distinct_ids));
  shard.layout.kernel = ComputeKernel::kFusedUvmCaching;
  shard.layout.cache_load_factor = 0.3;
  auto cached = Named(SomeConditions(), shard, 0);
  EXPECT_EQ(cached["fused_uvm"], 0);
  EXPECT_EQ(cached["fused_uvm_caching"], 1);
  const double missed = ExpectedCacheHits(shard.reuse_histogram, 1000, 500, 0.3).missed_rows();
  EXPECT_LT(missed, none.distinct_ids);
  EXPECT_DOUBLE_EQ(cached["log_missed_rows"], std::log1p(missed));
  EXPECT_DOUBLE_EQ(cached["log_missed_bytes"], std::log1p(missed * 16 * 2));
  EXPECT_DOUBLE_EQ(cached["log_missed_pages"], std::log1p(1 - std::pow(1 - missed / 1000, 1000)))
      << "of the one page";
  shard.rows = shard.table_rows = 1 << 20;
  const double far = ExpectedCacheHits(shard.reuse_histogram, 1 << 20, 500, 0.3).missed_rows();
  const double pages = (1 << 20) * 16 * 2 / 65536.0;  // 2048 rows each
  EXPECT_NEAR(Named(SomeConditions(), shard, 0)["log_missed_pages"],
              std::log1p(pages * (1 - std::pow(1 - far / (1 << 20), 2048))), 1e-12);
  shard.rows = shard.table_rows = 1000;
  shard.rows = 500;  // half of the rows have half of the misses
  EXPECT_DOUBLE_EQ(Named(SomeConditions(), shard, 0)["log_missed_rows"], std::log1p(missed / 2));
}

}  // namespace
}  // namespace neuroshard
