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
