#include "server/cost/unmeasured_compute.h"

#include <gmock/gmock.h>

#include <vector>

#include "server/cost/compute_features.h"
#include "server/cost/host_traffic.h"
#include "server/cost/volume_equivalent.h"

namespace neuroshard {
namespace {

using ::testing::IsEmpty;

// A measured model whose price is known: forward 1 ms a million bytes looked up, backward 0.5 ms a
// million of output, phi as both; it refuses what no worker measures.
struct KnownCompute final : ComputeModel {
  explicit KnownCompute(bool measured_unpooled = false, bool measured_host = false)
      : knows_unpooled(measured_unpooled), knows_host_memory(measured_host) {}

  const bool knows_unpooled;
  const bool knows_host_memory;

  int representation_width() const override { return 2; }

  void Represent(const PricingConditions& conditions, std::span<const ShardFeatures> shards,
                 std::span<float> phi) const override {
    const double batch = static_cast<double>(conditions.global_batch_size);
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const ShardFeatures& shard = shards[i];
      EXPECT_TRUE(knows_host_memory || !IsInHostMemory(shard.layout.kernel));
      EXPECT_FALSE(IsLowPrecision(shard.weight_dtype));
      EXPECT_EQ(shard.unpooled, knows_unpooled && shard.pooling_mode == PoolingMode::kNone);
      EXPECT_FALSE(shard.states_bags);
      EXPECT_LE(conditions.optimizer, Optimizer::kAdam);
      const double cols = static_cast<double>(shard.cols);
      const double vectors = LookupsOf(conditions, shard).vectors;
      phi[2 * i] = static_cast<float>(batch * shard.pooling_factor * cols *
                                      ElementBytes(shard.weight_dtype) / 1e6);
      phi[2 * i + 1] = static_cast<float>((shard.unpooled ? vectors : batch) * cols * 4 / 2e6);
    }
  }

  void Costs(std::span<const float> sums, std::span<ComputeCost> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = {sums[2 * i] + sums[2 * i + 1], sums[2 * i], sums[2 * i + 1]};
    }
  }

  std::vector<ComputeInterval> Intervals(const PricingConditions& /*conditions*/,
                                         const ShardSets& ranks,
                                         std::span<const ComputeCost> costs) const override {
    for (const ShardFeatures& shard : ranks.shards) {
      EXPECT_EQ(shard.unpooled, shard.pooling_mode == PoolingMode::kNone);
    }
    return std::vector<ComputeInterval>(costs.size());
  }
};

const auto kKnown = std::make_shared<const KnownCompute>();
const auto kKnownUnpooled = std::make_shared<const KnownCompute>(true);
const auto kKnownHost = std::make_shared<const KnownCompute>(false, true);
constexpr double kBytesPerMs = 1e6;  // of device memory, and of the link a tenth

CostModelInfo KnownInfo() {
  CostModelInfo info;
  info.coverage.ranges = {256, 16384, {"fp32", "fp16"}, {"sgd", "rowwise_adagrad"}, 1, 8, 1};
  info.properties.splits_compute = true;
  return info;
}

PricingConditions KnownConditions() {
  PricingConditions conditions;
  conditions.num_ranks = 2;
  conditions.global_batch_size = 1024;
  conditions.bandwidths.device_memory_bytes_per_s = 1000 * kBytesPerMs;
  conditions.bandwidths.host_to_device_bytes_per_s = 100 * kBytesPerMs;
  conditions.has_rows_off_device = true;
  return conditions;
}

ShardFeatures KnownShard() {
  ShardFeatures shard;
  shard.rows = shard.table_rows = 1'000'000;
  shard.cols = 64;
  shard.pooling_factor = 4;
  shard.reuse_histogram[0] = 1;
  return shard;
}

ComputeCost CostOf(const std::vector<ShardFeatures>& shards,
                   const PricingConditions& conditions = KnownConditions(),
                   const CostModelInfo& info = KnownInfo()) {
  const auto& known = KnowsUnpooled(info.coverage)                    ? kKnownUnpooled
                      : !info.coverage.ranges.compute_kernels.empty() ? kKnownHost
                                                                      : kKnown;
  const auto compute = WithUnmeasured(known, info, conditions);
  const std::size_t width = static_cast<std::size_t>(compute->representation_width());
  std::vector<float> phi(shards.size() * width);
  compute->Represent(conditions, shards, phi);
  std::vector<float> sum(width);
  for (std::size_t i = 0; i < phi.size(); ++i) sum[i % width] += phi[i];
  ComputeCost cost;
  compute->Costs(sum, {&cost, 1});
  return cost;
}

TEST(UnmeasuredComputeTest, NothingIsWrappedThatAsksForNothing) {
  PricingConditions conditions = KnownConditions();
  conditions.has_rows_off_device = false;
  for (const Optimizer optimizer : {Optimizer::kSgd, Optimizer::kAdam}) {
    conditions.optimizer = optimizer;
    EXPECT_EQ(WithUnmeasured(kKnown, KnownInfo(), conditions), kKnown);
  }
  conditions.optimizer = Optimizer::kLamb;
  EXPECT_NE(WithUnmeasured(kKnown, KnownInfo(), conditions), kKnown);
  CostModelInfo measured = KnownInfo();
  measured.coverage.ranges.optimizers.push_back("lamb");
  EXPECT_EQ(WithUnmeasured(kKnown, measured, conditions), kKnown);
}

TEST(UnmeasuredComputeTest, DeviceRowsCostWhatTheModelSaysBitForBit) {
  const std::vector<ShardFeatures> shards(3, KnownShard());
  PricingConditions without = KnownConditions();
  without.has_rows_off_device = false;
  const ComputeCost before = CostOf(shards, without);
  const ComputeCost after = CostOf(shards);
  EXPECT_EQ(after.total_ms, before.total_ms);
  EXPECT_EQ(after.forward_ms, before.forward_ms);
  EXPECT_EQ(after.backward_ms, before.backward_ms);
}

TEST(UnmeasuredComputeTest, RowsInHostMemoryAddTheirTraffic) {
  ShardFeatures host = KnownShard();
  host.layout.kernel = ComputeKernel::kFusedUvm;
  const ComputeCost on_device = CostOf({KnownShard(), KnownShard()});
  const ComputeCost mixed = CostOf({KnownShard(), host});
  const HostTraffic traffic = HostTrafficOf(KnownConditions(), host);
  EXPECT_NEAR(mixed.forward_ms, on_device.forward_ms + traffic.forward_ms, 1e-3);
  EXPECT_NEAR(mixed.backward_ms, on_device.backward_ms + traffic.backward_ms, 1e-3);
  EXPECT_EQ(mixed.total_ms, mixed.forward_ms + mixed.backward_ms);
  EXPECT_GT(mixed.total_ms, 5 * on_device.total_ms);  // the link is that slow
}

TEST(UnmeasuredComputeTest, RowsOnSsdAreLookedUpOnTheDeviceAndAddTheirTraffic) {
  PricingConditions conditions = KnownConditions();
  conditions.bandwidths.ssd_bytes_per_s = 10 * kBytesPerMs;
  ShardFeatures on_ssd = KnownShard();
  on_ssd.layout.kernel = ComputeKernel::kKeyValue;
  on_ssd.layout.cache_load_factor = 0.25;
  const HostTraffic traffic = HostTrafficOf(conditions, on_ssd);
  const ComputeCost device = CostOf({KnownShard()}, conditions);
  EXPECT_NEAR(CostOf({on_ssd}, conditions).total_ms, device.total_ms + traffic.total_ms(),
              1e-5 * traffic.total_ms());
  // Ahead of the batch, beside the lookups of the one before.
  conditions.pipeline_type = PipelineType::kTrainPrefetchSparseDist;
  EXPECT_NEAR(
      CostOf({on_ssd}, conditions).total_ms,
      std::max(device.total_ms + traffic.forward_ms + traffic.backward_ms, traffic.total_ms()),
      1e-5 * traffic.total_ms());
}

TEST(UnmeasuredComputeTest, UnderOffloadTheDeviceLooksNothingUp) {
  ShardFeatures host = KnownShard();
  host.layout.kernel = ComputeKernel::kOffload;
  const HostTraffic traffic = HostTrafficOf(KnownConditions(), host);
  const ComputeCost alone = CostOf({host});
  EXPECT_NEAR(alone.forward_ms, traffic.forward_ms, 1e-5 * traffic.forward_ms);
  EXPECT_NEAR(alone.backward_ms, traffic.backward_ms, 1e-5 * traffic.backward_ms);
  const ComputeCost beside = CostOf({KnownShard(), host});
  EXPECT_NEAR(beside.total_ms, CostOf({KnownShard()}).total_ms + alone.total_ms,
              1e-5 * beside.total_ms);
}

TEST(UnmeasuredComputeTest, MoreCacheNeverCostsMorePrefetchedOrNot) {
  for (const bool prefetches : {false, true}) {
    PricingConditions conditions = KnownConditions();
    if (prefetches) conditions.pipeline_type = PipelineType::kTrainPrefetchSparseDist;
    for (const double pooling_factor : {1.0, 50.0, 1000.0}) {
      ShardFeatures shard = KnownShard();
      shard.pooling_factor = pooling_factor;
      shard.reuse_histogram = DefaultReuseHistogram();
      const float on_device = CostOf({shard}, conditions).total_ms;
      shard.layout.kernel = ComputeKernel::kFusedUvm;
      float before = CostOf({shard}, conditions).total_ms;
      shard.layout.kernel = ComputeKernel::kFusedUvmCaching;
      for (const double load_factor : {0.001, 0.01, 0.05, 0.2, 0.5, 0.9, 1.0}) {
        shard.layout.cache_load_factor = load_factor;
        const float now = CostOf({shard}, conditions).total_ms;
        EXPECT_LE(now, before * (1 + 1e-4)) << load_factor;
        EXPECT_GE(now, on_device);
        before = now;
      }
      EXPECT_EQ(before, on_device);
    }
  }
}

TEST(UnmeasuredComputeTest, APrefetchCountsWhereItTakesLongerThanTheLookups) {
  ShardFeatures host = KnownShard();
  host.layout = {.kernel = ComputeKernel::kFusedUvmCaching, .cache_load_factor = 0.5};
  PricingConditions conditions = KnownConditions();
  conditions.pipeline_type = PipelineType::kTrainPrefetchSparseDist;
  const double fetch_ms = HostTrafficOf(conditions, host).cache_ms;
  EXPECT_NEAR(CostOf({host}, conditions).total_ms, fetch_ms, 1e-3);
  conditions.bandwidths.host_to_device_bytes_per_s *= 1000;
  EXPECT_EQ(CostOf({host}, conditions).total_ms, CostOf({KnownShard()}, conditions).total_ms);
}

TEST(UnmeasuredComputeTest, APrefetchSharesTheLinkWithRowsThatDoNotFit) {
  ShardFeatures host = KnownShard();  // 4096 distinct ids, of which the cache holds a quarter
  host.layout = {.kernel = ComputeKernel::kFusedUvmCaching, .cache_load_factor = 0.001};
  PricingConditions conditions = KnownConditions();
  conditions.pipeline_type = PipelineType::kTrainPrefetchSparseDist;
  conditions.bandwidths.host_to_device_bytes_per_s /= 100;
  const HostTraffic traffic = HostTrafficOf(conditions, host);
  EXPECT_GT(traffic.cache_ms, 0);
  EXPECT_GT(traffic.forward_ms, 0);
  EXPECT_NEAR(CostOf({host}, conditions).total_ms, traffic.total_ms(), 1e-6 * traffic.total_ms());
}

TEST(UnmeasuredComputeTest, RowsOfOneByteStandAsTheSmallestMeasured) {
  ShardFeatures fp16 = KnownShard();
  fp16.weight_dtype = DataType::kFp16;
  ShardFeatures int8 = fp16;
  int8.weight_dtype = DataType::kInt8;
  const ComputeCost near = CostOf({fp16});
  const ComputeCost cost = CostOf({int8});
  const double ids = 1024 * 4;
  // A value less, and the row's scale and bias more.
  EXPECT_NEAR(cost.forward_ms, near.forward_ms - ids * (64 - 8) / kBytesPerMs, 1e-4);
  // Every row read and written, one byte a value less; no more than half is saved.
  EXPECT_NEAR(cost.backward_ms, near.backward_ms / 2, 1e-4);
  EXPECT_LT(cost.total_ms, near.total_ms);
  EXPECT_LT(near.total_ms, CostOf({KnownShard()}).total_ms);
  ShardFeatures int4 = fp16;
  int4.weight_dtype = DataType::kInt4;
  EXPECT_LT(CostOf({int4}).forward_ms, cost.forward_ms);
  EXPECT_EQ(CostOf({int4}).forward_ms, near.forward_ms / 2);
}

TEST(UnmeasuredComputeTest, VectorsCostTheirBytes) {
  ShardFeatures half = KnownShard();
  half.output_dtype = DataType::kFp16;
  const ComputeCost fp32 = CostOf({KnownShard()});
  EXPECT_NEAR(CostOf({half}).forward_ms, fp32.forward_ms - 1024 * 64 * 2 / kBytesPerMs, 1e-4);
  half.output_dtype = DataType::kFp32;
  EXPECT_EQ(CostOf({half}).total_ms, fp32.total_ms);
}

TEST(UnmeasuredComputeTest, UnpooledIdsAreBagsOfOneAsFarAsBatchesWereMeasured) {
  ShardFeatures sequence = KnownShard();
  sequence.unpooled = true;
  PricingConditions larger = KnownConditions();
  larger.global_batch_size = 4096;
  ShardFeatures single = KnownShard();
  single.pooling_factor = 1;
  EXPECT_EQ(CostOf({sequence}).total_ms, CostOf({single}, larger).total_ms);
  // Past the largest measured batch vectors are added by their bytes.
  CostModelInfo small = KnownInfo();
  small.coverage.ranges.max_batch_size = 2048;
  const ComputeCost cost = CostOf({sequence}, KnownConditions(), small);
  EXPECT_NEAR(cost.forward_ms, 4096 * 256 / 1e6 + 2048 * 256 / kBytesPerMs, 1e-3);
  EXPECT_NEAR(cost.backward_ms, 2048 * 256 / 2e6 + 2048 * 256 / kBytesPerMs, 1e-3);
  // Rows over ranks: each has its part of the ids, and of the vectors.
  ShardFeatures part = sequence;
  part.layout = {.type = ShardingType::kRowWise, .row_shards = 2};
  part.rows /= 2;
  EXPECT_NEAR(CostOf({part, part}).backward_ms, CostOf({sequence}).backward_ms, 1e-4);
}

TEST(UnmeasuredComputeTest, UnpooledTablesAreThatToAModelThatWasMeasuredAtThem) {
  CostModelInfo info = KnownInfo();
  info.coverage.ranges.pooling_modes = {"sum", "none"};
  PricingConditions conditions = KnownConditions();
  conditions.has_plain_tables = conditions.has_rows_off_device = false;
  ShardFeatures sequence = KnownShard();  // a table's pooling mode says nothing where it has none
  sequence.unpooled = true;
  const ComputeCost cost = CostOf({sequence}, conditions, info);
  EXPECT_FLOAT_EQ(cost.forward_ms, CostOf({KnownShard()}).forward_ms);
  EXPECT_FLOAT_EQ(cost.backward_ms, 4 * CostOf({KnownShard()}).backward_ms);
  // Rows over ranks: each has its part of the ids.
  ShardFeatures part = sequence;
  part.layout = {.type = ShardingType::kRowWise, .row_shards = 2};
  part.rows /= 2;
  EXPECT_FLOAT_EQ(CostOf({part, part}, conditions, info).backward_ms, cost.backward_ms);
  // Bags of several features are ids like others.
  sequence.states_bags = true;
  sequence.bags = {3, 0};
  EXPECT_EQ(CostOf({sequence}, conditions, info).total_ms, cost.total_ms);
  sequence.states_bags = false;
  // What was not measured is added to it: vectors of two bytes, and no interval then.
  const auto compute = WithUnmeasured(kKnownUnpooled, info, conditions);
  std::vector<std::vector<ShardFeatures>> ranks(2, {sequence});
  const std::vector<ComputeCost> costs(2);
  EXPECT_EQ(compute->Intervals(conditions, ranks, costs).size(), 2);
  ranks[0][0].output_dtype = DataType::kFp16;
  EXPECT_THAT(compute->Intervals(conditions, ranks, costs), IsEmpty());
  EXPECT_NEAR(CostOf({ranks[0][0]}, conditions, info).forward_ms,
              cost.forward_ms - 4 * 1024 * 64 * 2 / kBytesPerMs, 1e-4);
}

TEST(UnmeasuredComputeTest, RowsInHostMemoryHaveNoTrafficWhereTheyWereMeasured) {
  ShardFeatures cached = KnownShard();
  cached.layout.kernel = ComputeKernel::kFusedUvmCaching;
  cached.layout.cache_load_factor = 0.1;
  PricingConditions conditions = KnownConditions();
  CostModelInfo info = KnownInfo();
  const ComputeCost formula = CostOf({cached}, conditions, info);
  EXPECT_GT(formula.total_ms, CostOf({KnownShard()}, conditions, info).total_ms);
  info.coverage.ranges.compute_kernels = {"fused", "fused_uvm"};
  EXPECT_EQ(CostOf({cached}, conditions, info).total_ms, formula.total_ms) << "another kernel";
  info.coverage.ranges.compute_kernels = {"fused", "fused_uvm_caching"};
  EXPECT_EQ(CostOf({cached}, conditions, info).total_ms,
            CostOf({KnownShard()}, conditions, info).total_ms)
      << "the model has it from its features, which this one does not look at";
  const auto compute = WithUnmeasured(kKnown, info, conditions);
  const std::vector<ComputeCost> costs(1);
  const std::vector<std::vector<ShardFeatures>> ranks = {{cached}};
  EXPECT_EQ(compute->Intervals(conditions, ranks, costs).size(), 1);
  conditions.pipeline_type = PipelineType::kTrainPrefetchSparseDist;
  EXPECT_THAT(compute->Intervals(conditions, ranks, costs), IsEmpty()) << "prefetched";
}

TEST(UnmeasuredComputeTest, StatedBagsAreABatchOfSoMany) {
  ShardFeatures bags = KnownShard();
  bags.states_bags = true;
  bags.pooling_factor = 12;
  bags.bags = {3, 0};
  PricingConditions larger = KnownConditions();
  larger.global_batch_size = 3 * 1024;
  EXPECT_EQ(CostOf({bags}).total_ms, CostOf({KnownShard()}, larger).total_ms);
  bags.pooling_factor = 2;
  bags.bags = {0, 512};  // half of the samples have the feature
  larger.global_batch_size = 512;
  EXPECT_EQ(CostOf({bags}).total_ms, CostOf({KnownShard()}, larger).total_ms);
}

TEST(UnmeasuredComputeTest, OptimizersAddTheirState) {
  PricingConditions conditions = KnownConditions();
  conditions.optimizer = Optimizer::kRowwiseAdagrad;
  const ComputeCost nearest = CostOf({KnownShard()}, conditions);
  conditions.optimizer = Optimizer::kLamb;
  const double rows = 1024 * 4;
  EXPECT_NEAR(CostOf({KnownShard()}, conditions).backward_ms,
              nearest.backward_ms + rows * (2 * 64 * 8 + 256 - 2 * 4) / kBytesPerMs, 1e-3);
  EXPECT_EQ(StandInFor(KnownInfo().coverage, Optimizer::kLamb), Optimizer::kRowwiseAdagrad);
  EXPECT_EQ(StandInFor(KnownInfo().coverage, Optimizer::kAdam), std::nullopt);
  EXPECT_EQ(StandInFor(ModelCoverage(), Optimizer::kLamb), std::nullopt);
}

TEST(UnmeasuredComputeTest, CastsTakeTwoPassesAtEitherEnd) {
  PricingConditions conditions = KnownConditions();
  conditions.quantized_comms.forward_dtype = DataType::kBf16;
  const ComputeCost before = CostOf({KnownShard()});
  const ComputeCost cost = CostOf({KnownShard()}, conditions);
  EXPECT_NEAR(cost.forward_ms, before.forward_ms + 2 * 1024 * 64 * (4 + 2) / kBytesPerMs, 1e-3);
  EXPECT_EQ(cost.backward_ms, before.backward_ms);
  ShardFeatures bf16 = KnownShard();
  bf16.output_dtype = DataType::kBf16;  // as it is
  EXPECT_LT(CostOf({bf16}, conditions).total_ms, before.total_ms);
  conditions.num_ranks = 1;
  EXPECT_EQ(CostOf({KnownShard()}, conditions).total_ms, before.total_ms);
}

TEST(UnmeasuredComputeTest, MeasuredCastsTakeTheirRatesByAllValuesOfTheRank) {
  PricingConditions conditions = KnownConditions();
  conditions.quantized_comms = {DataType::kBf16, DataType::kFp16};
  CostModelInfo info = KnownInfo();
  constexpr double kValues = 2 * 1024 * 64;  // of one shard
  info.properties.measured_casts.bf16 = CastRates{0.5, 1.5 * kValues, 2};
  const ComputeCost before = CostOf({KnownShard()});
  const ComputeCost cost = CostOf({KnownShard()}, conditions, info);
  EXPECT_NEAR(cost.forward_ms, before.forward_ms + kValues * 0.5 / 1e6, 1e-3);
  EXPECT_NEAR(cost.backward_ms, before.backward_ms + kValues * (4 + 2) / kBytesPerMs, 1e-3);
  const float two_plain_ms = CostOf({KnownShard(), KnownShard()}).forward_ms;
  const float two_ms = CostOf({KnownShard(), KnownShard()}, conditions, info).forward_ms;
  EXPECT_NEAR(two_ms - two_plain_ms, kValues * (1.5 * 0.5 + 0.5 * 2) / 1e6, 1e-3);
  ShardFeatures bf16 = KnownShard();
  bf16.output_dtype = DataType::kBf16;  // as it is
  EXPECT_LT(CostOf({bf16}, conditions, info).forward_ms, before.forward_ms);

  const auto intervals = [&] {
    return WithUnmeasured(kKnown, info, conditions)
        ->Intervals(conditions, std::vector<std::vector<ShardFeatures>>(2, {KnownShard()}),
                    std::vector<ComputeCost>(2))
        .size();
  };
  EXPECT_EQ(intervals(), 0) << "fp16 is a formula";
  info.properties.measured_casts.fp16 = CastRates{0.25, 0, 0.25};
  EXPECT_EQ(intervals(), 2);
}

TEST(UnmeasuredComputeTest, AModelThatDoesNotSplitHasAllInItsTotal) {
  CostModelInfo info = KnownInfo();
  ShardFeatures host = KnownShard();
  host.layout.kernel = ComputeKernel::kFusedUvm;
  const float split = CostOf({host}).total_ms;
  info.properties.splits_compute = false;
  EXPECT_NEAR(CostOf({host}, KnownConditions(), info).total_ms, split, 1e-3);
}

TEST(UnmeasuredComputeTest, OnlyWhatWasMeasuredHasIntervals) {
  const auto compute = WithUnmeasured(kKnown, KnownInfo(), KnownConditions());
  std::vector<std::vector<ShardFeatures>> ranks(2, {KnownShard()});
  const std::vector<ComputeCost> costs(2);
  EXPECT_EQ(compute->Intervals(KnownConditions(), ranks, costs).size(), 2);
  ranks[1][0].layout = {.kernel = ComputeKernel::kFusedUvmCaching, .cache_load_factor = 0.5};
  EXPECT_THAT(compute->Intervals(KnownConditions(), ranks, costs), IsEmpty());
}

}  // namespace
}  // namespace neuroshard
