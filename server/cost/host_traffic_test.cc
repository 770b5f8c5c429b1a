#include "server/cost/host_traffic.h"

#include <gtest/gtest.h>

namespace neuroshard {
namespace {

PricingConditions TrafficConditions() {
  PricingConditions conditions;
  conditions.num_ranks = 4;
  conditions.global_batch_size = 4096;
  conditions.optimizer = Optimizer::kRowwiseAdagrad;
  conditions.bandwidths.host_to_device_bytes_per_s = 1e9;
  return conditions;
}

// A table of 1,000,000 x 64 whose ids do not repeat.
ShardFeatures HostShard(ComputeKernel kernel, double load_factor = 0) {
  ShardFeatures shard;
  shard.rows = shard.table_rows = 1'000'000;
  shard.cols = 64;
  shard.layout.kernel = kernel;
  shard.layout.cache_load_factor = load_factor;
  shard.pooling_factor = 2;
  shard.reuse_histogram[0] = 1;
  return shard;
}

double TotalMs(const ShardFeatures& shard) {
  return HostTrafficOf(TrafficConditions(), shard).total_ms();
}

TEST(HostTrafficTest, DeviceMemoryHasNone) {
  EXPECT_EQ(TotalMs(HostShard(ComputeKernel::kFused)), 0);
  EXPECT_EQ(TotalMs(HostShard(ComputeKernel::kDense)), 0);
}

TEST(HostTrafficTest, WithoutACacheEveryDistinctRowIsReadTwiceAndWrittenOnce) {
  const HostTraffic traffic =
      HostTrafficOf(TrafficConditions(), HostShard(ComputeKernel::kFusedUvm));
  const double rows = 8192;  // looked up, hardly any twice
  EXPECT_NEAR(traffic.forward_ms, rows * 256 / 1e6, 0.01 * traffic.forward_ms);
  EXPECT_NEAR(traffic.backward_ms, rows * 2 * 256 / 1e6, 0.01 * traffic.backward_ms);
  EXPECT_EQ(traffic.cache_ms, 0);
}

TEST(HostTrafficTest, ACacheFetchesWhatItMissesAndWritesItBack) {
  const HostTraffic traffic =
      HostTrafficOf(TrafficConditions(), HostShard(ComputeKernel::kFusedUvmCaching, 0.5));
  EXPECT_EQ(traffic.forward_ms, 0);
  EXPECT_EQ(traffic.backward_ms, 0);
  EXPECT_NEAR(traffic.cache_ms, 0.5 * 8192 * 2 * 256 / 1e6, 0.05 * traffic.cache_ms);
}

// The batch's rows are more than small caches hold.
TEST(HostTrafficTest, MoreCacheNeverCostsMoreAndAWholeOneNothing) {
  for (const double pooling_factor : {0.1, 2.0, 200.0, 2e4}) {
    ShardFeatures shard = HostShard(ComputeKernel::kFusedUvm);
    shard.pooling_factor = pooling_factor;
    shard.reuse_histogram = DefaultReuseHistogram();
    double before = TotalMs(shard);
    EXPECT_GT(before, 0);
    for (const double load_factor : {1e-4, 0.001, 0.01, 0.1, 0.2, 0.5, 0.9, 1.0}) {
      shard.layout = {.kernel = ComputeKernel::kFusedUvmCaching, .cache_load_factor = load_factor};
      const double now = TotalMs(shard);
      EXPECT_LE(now, before * (1 + 1e-4)) << pooling_factor << " " << load_factor;
      before = now;
    }
    EXPECT_EQ(before, 0);
  }
}

TEST(HostTrafficTest, StateOfEveryWeightIsNeverInTheCache) {
  PricingConditions adam = TrafficConditions();
  adam.optimizer = Optimizer::kAdam;
  const double rows = 8192;
  for (const ComputeKernel kernel : {ComputeKernel::kFusedUvm, ComputeKernel::kFusedUvmCaching}) {
    const ShardFeatures shard = HostShard(kernel, kernel == ComputeKernel::kFusedUvm ? 0 : 1);
    const double state_ms = HostTrafficOf(adam, shard).total_ms() -
                            HostTrafficOf(TrafficConditions(), shard).total_ms();
    EXPECT_NEAR(state_ms, rows * 2 * 512 / 1e6, 0.01 * state_ms);
  }
}

TEST(HostTrafficTest, RisesWithTheBytesOfAValueAndFallsWithTheLink) {
  for (const ComputeKernel kernel : {ComputeKernel::kFusedUvm, ComputeKernel::kFusedUvmCaching}) {
    ShardFeatures shard = HostShard(kernel, kernel == ComputeKernel::kFusedUvm ? 0 : 0.2);
    const double fp32 = TotalMs(shard);
    shard.weight_dtype = DataType::kFp16;
    const double fp16 = TotalMs(shard);
    shard.weight_dtype = DataType::kInt8;
    EXPECT_GT(fp32, fp16);
    EXPECT_GT(fp16, TotalMs(shard));
    PricingConditions faster = TrafficConditions();
    faster.bandwidths.host_to_device_bytes_per_s *= 10;
    EXPECT_NEAR(HostTrafficOf(faster, shard).total_ms(), TotalMs(shard) / 10, 1e-9);
  }
}

// 4096 samples of 2 ids, 64 columns of fp32; 2 ranks share the memory of the host.
TEST(HostTrafficTest, UnderOffloadTheHostLooksUpAndVectorsCrossTheLink) {
  PricingConditions conditions = TrafficConditions();
  conditions.ranks_per_host = 2;
  conditions.bandwidths.host_memory_bytes_per_s = 8e9;  // 4e6 a rank and ms
  ShardFeatures shard = HostShard(ComputeKernel::kOffload);
  shard.vectors = {.of_sample = 1};
  shard.num_features = 1;
  const double vectors = 4096 * 256, input = 8192 * 8 + 4096 * 8;
  const double update = 2 * 8192 * (256 + 4);  // row-wise state
  const HostTraffic traffic = HostTrafficOf(conditions, shard);
  EXPECT_NEAR(traffic.forward_ms, (input + vectors) / 1e6 + (8192 * 256 + vectors) / 4e6, 1e-6);
  EXPECT_NEAR(traffic.backward_ms, vectors / 1e6 + (vectors + update) / 4e6, 1e-6);
  EXPECT_EQ(traffic.cache_ms, 0);

  shard.layout.type = ShardingType::kRowWise;
  shard.layout.row_shards = 4;
  shard.rows /= 4;
  const HostTraffic quarter = HostTrafficOf(conditions, shard);
  const double quarter_input = 2048 * 8 + 4096 * 8;  // bags may have ids of every block
  EXPECT_NEAR(quarter.forward_ms, (quarter_input + vectors) / 1e6 + (2048 * 256 + vectors) / 4e6,
              1e-6);
  EXPECT_NEAR(quarter.backward_ms, vectors / 1e6 + (vectors + update / 4) / 4e6, 1e-6);
}

TEST(HostTrafficTest, DynamicTablesMoveTheStateWithItsRows) {
  PricingConditions conditions = TrafficConditions();
  conditions.optimizer = Optimizer::kAdam;
  const auto of = [&](ComputeKernel kernel, double share) {
    return HostTrafficOf(conditions, HostShard(kernel, share));
  };
  // Rows are where their keys fall, hot or not: three quarters of all that are looked up.
  const HostTraffic none = of(ComputeKernel::kDynamicHybrid, 1e-9);
  const HostTraffic quarter = of(ComputeKernel::kDynamicHybrid, 0.25);
  EXPECT_NEAR(quarter.forward_ms, 0.75 * none.forward_ms, 1e-6 * none.forward_ms);
  EXPECT_NEAR(quarter.backward_ms, 0.75 * none.backward_ms, 1e-6 * none.backward_ms);
  EXPECT_EQ(quarter.cache_ms, 0);
  EXPECT_EQ(of(ComputeKernel::kDynamicHybrid, 1).total_ms(), 0);
  // A cache of FBGEMM's leaves the state in host memory.
  EXPECT_LT(of(ComputeKernel::kDynamicCaching, 0.25).backward_ms,
            of(ComputeKernel::kFusedUvmCaching, 0.25).backward_ms);
  EXPECT_EQ(of(ComputeKernel::kDynamicCaching, 0.25).cache_ms,
            of(ComputeKernel::kFusedUvmCaching, 0.25).cache_ms);
  EXPECT_LT(of(ComputeKernel::kDynamicCaching, 0.25).total_ms(), quarter.total_ms());
}

TEST(HostTrafficTest, RowsOnSsdAreReadAndWrittenBackAndCrossTheLink) {
  PricingConditions conditions = TrafficConditions();
  conditions.bandwidths.ssd_bytes_per_s = 1e8;
  const HostTraffic cached =
      HostTrafficOf(conditions, HostShard(ComputeKernel::kFusedUvmCaching, 0.5));
  const HostTraffic on_ssd = HostTrafficOf(conditions, HostShard(ComputeKernel::kKeyValue, 0.5));
  EXPECT_EQ(on_ssd.forward_ms, cached.forward_ms);
  EXPECT_EQ(on_ssd.backward_ms, cached.backward_ms);
  // The same bytes at a tenth of the speed besides.
  EXPECT_NEAR(on_ssd.cache_ms, 11 * cached.cache_ms, 1e-9 * on_ssd.cache_ms);

  // Rows that the cache has no place for come from the SSD just as well, and go back.
  const HostTraffic small = HostTrafficOf(conditions, HostShard(ComputeKernel::kKeyValue, 1e-9));
  EXPECT_NEAR(small.cache_ms, 8192 * 2 * 256 / 1e5, 0.01 * small.cache_ms);
  EXPECT_NEAR(small.backward_ms, 8192 * 2 * 256 / 1e6, 0.01 * small.backward_ms);
}

TEST(HostTrafficTest, ACacheInHostMemoryKeepsRowsFromTheSsd) {
  const auto of = [](double load_factor, double host_share) {
    ShardFeatures shard = HostShard(ComputeKernel::kKeyValue, load_factor);
    shard.host_cached_share = host_share;
    return HostTrafficOf(TrafficConditions(), shard).total_ms();
  };
  const double link_ms = TotalMs(HostShard(ComputeKernel::kFusedUvmCaching, 0.25));
  EXPECT_NEAR(of(0.25, 0.75), link_ms, 1e-6 * link_ms);
  double last_ms = of(0.25, 0);
  for (const double share : {0.1, 0.3, 0.6, 0.75}) {
    const double ms = of(0.25, share);
    EXPECT_LT(ms, last_ms);
    last_ms = ms;
  }
  EXPECT_NEAR(of(1, 0), 0, 1e-6);
}

// As FBGEMM has it: no cache holds optimizer state, since the device has all of it.
TEST(HostTrafficTest, StateOfRowsOnSsdIsOnTheDevice) {
  PricingConditions conditions = TrafficConditions();
  const auto ms = [&](ComputeKernel kernel) {
    return HostTrafficOf(conditions, HostShard(kernel, 0.5)).total_ms();
  };
  const double on_ssd = ms(ComputeKernel::kKeyValue);
  const double in_host_memory = ms(ComputeKernel::kFusedUvmCaching);
  conditions.optimizer = Optimizer::kAdam;
  EXPECT_EQ(ms(ComputeKernel::kKeyValue), on_ssd);
  EXPECT_GT(ms(ComputeKernel::kFusedUvmCaching), in_host_memory);
}

TEST(HostTrafficTest, PartsOfATableHaveTheirShare) {
  const double whole = TotalMs(HostShard(ComputeKernel::kFusedUvmCaching, 0.2));
  ShardFeatures part = HostShard(ComputeKernel::kFusedUvmCaching, 0.2);
  part.cols = 16;
  EXPECT_NEAR(TotalMs(part), whole / 4, 1e-9);
  part = HostShard(ComputeKernel::kFusedUvmCaching, 0.2);
  part.layout.type = ShardingType::kRowWise;
  part.layout.row_shards = 4;
  part.rows /= 4;
  EXPECT_NEAR(TotalMs(part), whole / 4, 1e-9);
  part.rows = 0;
  EXPECT_EQ(TotalMs(part), 0);
}

}  // namespace
}  // namespace neuroshard
