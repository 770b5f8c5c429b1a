#include "server/cost/analytic/analytic_cost_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "common/base/random.h"
#include "common/domain/expected_lookups.h"
#include "server/cost/host_traffic.h"
#include "server/cost/shard_features.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kRows = 1'000'000;

// What `shards` cost alone, compute and communication.
std::vector<double> CostsAlone(const PricingConditions& conditions,
                               const std::vector<ShardFeatures>& shards) {
  const BoundCostModel model = MakeAnalyticCostModel()->Bind(conditions).value();
  std::vector<float> phi(2 * shards.size());
  std::vector<CommLoad> loads(shards.size());
  model.Represent(shards, phi, loads);
  std::vector<double> costs;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    costs.push_back(static_cast<double>(phi[2 * i]) + static_cast<double>(phi[2 * i + 1]) +
                    static_cast<double>(loads[i].forward) + static_cast<double>(loads[i].backward));
  }
  return costs;
}

TEST(AnalyticCostModelTest, OneRankCommunicatesWithNobody) {
  const auto model = MakeAnalyticCostModel();
  const std::vector<float> loads = {1, 2};
  std::vector<float> cost_ms(2);
  model->Bind({.num_ranks = 2})->comm().BackwardCosts(loads, cost_ms);
  EXPECT_THAT(cost_ms, ::testing::ElementsAre(1, 2));
  model->Bind({.num_ranks = 1})->comm().BackwardCosts(loads, cost_ms);
  EXPECT_THAT(cost_ms, ::testing::ElementsAre(0, 0));
}

// input_dist_comms of TorchRec 1.9.2's EmbeddingPerfEstimator at its default bandwidths; the same
// for every shard of every type but data_parallel, and not part of its total.
TEST(AnalyticCostModelTest, DistributionOfIdsTakesWhatTorchRecSays) {
  struct Golden {
    int ranks;
    int ranks_per_host;
    std::int64_t samples;  // of one rank
    std::vector<double> pooling_factors;
    std::vector<double> num_poolings;
    std::vector<std::int64_t> batch_sizes;  // of one rank, by feature
    float ms;
  };
  const std::vector<Golden> goldens = {
      {2, 2, 512, {20}, {}, {}, 0.0002543131510416667F},
      {2, 2, 512, {20}, {2}, {100}, 9.934107462565105e-05F},
      {16, 8, 4096, {4, 4}, {}, {}, 0.3125F},
      {16, 8, 4096, {4, 4}, {2, 3}, {100, 300}, 0.041961669921875F},
      {16, 8, 512, {0.25}, {}, {}, 0.001220703125F},
      {16, 8, 512, {0.25}, {2}, {100}, 0.000476837158203125F},
  };
  for (const Golden& golden : goldens) {
    PricingConditions conditions;
    conditions.num_ranks = golden.ranks;
    conditions.ranks_per_host = golden.ranks_per_host;
    conditions.global_batch_size = golden.samples * golden.ranks;
    conditions.pipeline_type = PipelineType::kTrainSparseDist;
    Table table;
    table.num_embeddings = kRows;
    table.embedding_dim = 128;
    table.weighted = true;  // TorchRec leaves weights out here
    table.features.resize(golden.pooling_factors.size(), "f");
    table.pooling_factors = golden.pooling_factors;
    table.num_poolings = golden.num_poolings;
    for (const std::int64_t samples : golden.batch_sizes) {
      table.feature_batch_sizes.push_back(samples * golden.ranks);
    }
    table.pooling_factor = 0;  // ids of a global batch / its samples
    for (std::size_t f = 0; f < golden.pooling_factors.size(); ++f) {
      const double bags = golden.num_poolings.empty() ? 1 : golden.num_poolings[f];
      const std::int64_t samples =
          golden.batch_sizes.empty() ? golden.samples : golden.batch_sizes[f];
      table.pooling_factor += golden.pooling_factors[f] * bags * static_cast<double>(samples) /
                              static_cast<double>(golden.samples);
    }
    const InputDist input_dist = *MakeAnalyticCostModel()->Bind(conditions)->input_dist();
    for (const auto& word : kWords<ShardingType>) {
      ShardLayout layout;
      layout.type = word.value;
      layout.row_shards = CutsRows(word.value) ? golden.ranks : 1;
      const float ms = input_dist.Ms(FeaturesOf(table, layout, kRows / layout.row_shards, 64));
      EXPECT_FLOAT_EQ(ms, word.value == ShardingType::kDataParallel ? 0 : golden.ms) << word.text;
    }
  }
}

// All but row_wise_subset, which is not TorchRec's.
TEST(AnalyticCostModelTest, TypesOfTorchRecsRuntimeAreTried) {
  std::vector<ShardingType> expected;
  for (const auto& word : kWords<ShardingType>) {
    if (word.value != ShardingType::kRowWiseSubset) expected.push_back(word.value);
  }
  EXPECT_THAT(MakeAnalyticCostModel()->info().coverage.sharding_types,
              ::testing::UnorderedElementsAreArray(expected));
}

TEST(AnalyticCostModelTest, WhatIsServedCostsItsForwardPassAlone) {
  PricingConditions conditions = {.num_ranks = 8, .ranks_per_host = 4};
  conditions.hosts = {{0, 4}, {4, 4}};
  conditions.global_batch_size = 4096;
  conditions.pipeline_type = PipelineType::kNone;
  const BoundCostModel trained = MakeAnalyticCostModel()->Bind(conditions).value();
  conditions.optimizer = Optimizer::kNone;
  const BoundCostModel served = MakeAnalyticCostModel()->Bind(conditions).value();
  EXPECT_FALSE(served.properties().monotone_shard_costs);
  ShardSets sets;
  Table table;
  table.num_embeddings = kRows;
  table.embedding_dim = 128;
  for (const auto& word : kWords<ShardingType>) {
    ShardLayout layout;
    layout.type = word.value;
    layout.row_shards = CutsRows(word.value) ? 8 : 1;
    sets.sets.push_back({static_cast<int>(sets.shards.size())});
    sets.shards.push_back(FeaturesOf(table, layout, kRows / layout.row_shards, 128));
  }
  const std::vector<ShardSetCost> both = trained.CostsOfSets(sets, {});
  const std::vector<ShardSetCost> one = served.CostsOfSets(sets, {});
  for (std::size_t i = 0; i < one.size(); ++i) {
    SCOPED_TRACE(kWords<ShardingType>[i].text);
    const ComputeCost& trains = both[i].compute;
    EXPECT_GT(trains.backward_ms, 0);
    EXPECT_EQ(one[i].compute.forward_ms, trains.forward_ms);
    EXPECT_EQ(one[i].compute.backward_ms, 0);
    EXPECT_FLOAT_EQ(one[i].compute.total_ms, trains.total_ms - trains.backward_ms)
        << "with the distribution of ids";
    EXPECT_EQ(one[i].load.forward, both[i].load.forward);
    EXPECT_EQ(one[i].load.backward, 0);
  }
  std::vector<float> cost_ms(8, 1.0F);
  served.comm().BackwardCosts(std::vector<float>(8, 2.0F), cost_ms);
  EXPECT_THAT(cost_ms, ::testing::Each(0));
}

// fp32, one feature, unweighted, in ms: in = 8192 ids x 8 B, look-up 8192 x 128 x 4 B, out 4096 x
// 128 x 4 B (4 ranks of 1024 samples, 2 ids each).
TEST(AnalyticCostModelTest, TypeFeaturesWeightsAndBandwidthsOfTheRequestCount) {
  PricingConditions conditions;
  conditions.num_ranks = 4;
  conditions.ranks_per_host = 4;
  conditions.global_batch_size = 4096;
  conditions.bandwidths = {1e9, 2e9, 3e9};
  Table table;
  table.num_embeddings = kRows;
  table.embedding_dim = 128;
  table.pooling_factor = 2;
  const auto cost = [&] { return CostsAlone(conditions, {FeaturesOf(table, {}, kRows, 128)})[0]; };
  const double out = 4096 * 128 * 4;
  const double in = 8192 * 8;
  EXPECT_NEAR(cost(), 3 * (in + 2 * out + out) / 1e6 + 2 * out / 2e6, 1e-4);

  conditions.ranks_per_host = 2;  // over the slower or faster link between hosts
  EXPECT_NEAR(cost(), 3 * (in + 2 * out + out) / 1e6 + 2 * out / 3e6, 1e-4);
  table.features = {"a", "b"};
  EXPECT_NEAR(cost(), 3 * (in + 2 * out + 2 * out) / 1e6 + 4 * out / 3e6, 1e-4);
  table.weight_dtype = DataType::kBf16;
  EXPECT_NEAR(cost(), 3 * (in + out + out) / 1e6 + 2 * out / 3e6, 1e-4);
  table.weighted = true;
  EXPECT_NEAR(cost(), 4.1 * (2 * in + out + out) / 1e6 + 2 * out / 3e6, 1e-4);
}

// A prefetched cache is read like device memory; what it misses crosses the link of the host.
TEST(AnalyticCostModelTest, PrefetchedCachesFetchTheRowsThatTheyMiss) {
  PricingConditions conditions;
  conditions.global_batch_size = 4096;
  Table table;
  table.num_embeddings = kRows;
  table.embedding_dim = 128;
  table.pooling_factor = 2;
  table.reuse_histogram = DefaultReuseHistogram();
  const auto cost = [&](ComputeKernel kernel, double load_factor) {
    const ShardLayout layout = {ShardingType::kTableWise, kernel, 1, load_factor};
    return CostsAlone(conditions, {FeaturesOf(table, layout, kRows, 128)})[0];
  };
  const double fused = cost(ComputeKernel::kFused, 0);
  EXPECT_GT(cost(ComputeKernel::kFusedUvmCaching, 1), 9 * fused);  // a tenth of the bandwidth
  conditions.pipeline_type = PipelineType::kTrainPrefetchSparseDist;
  EXPECT_EQ(cost(ComputeKernel::kFused, 0), fused);
  EXPECT_EQ(cost(ComputeKernel::kFusedUvmCaching, 1), fused);
  const double missed_rows =
      ExpectedCacheHits(table.reuse_histogram, kRows, 8192, 0.01).missed_rows();
  EXPECT_NEAR(cost(ComputeKernel::kFusedUvmCaching, 0.01) - fused,
              missed_rows * 512 / (32.0 * (1 << 30) / 1000), 1e-6);
}

TEST(AnalyticCostModelTest, UnderOffloadComputeIsTheHostsAndTheExchangeAsEver) {
  PricingConditions conditions;
  conditions.num_ranks = 4;
  conditions.ranks_per_host = 2;
  Table table;
  table.num_embeddings = kRows;
  table.embedding_dim = 128;
  table.pooling_factor = 20;
  table.reuse_histogram = DefaultReuseHistogram();
  for (const ShardingType type : {ShardingType::kTableWise, ShardingType::kRowWise}) {
    const int parts = type == ShardingType::kRowWise ? 4 : 1;
    const auto price = [&](ComputeKernel kernel, ComputeCost& compute, CommLoad& load) {
      const std::vector<ShardFeatures> shards = {
          FeaturesOf(table, {type, kernel, parts}, kRows / parts, 128)};
      const BoundCostModel model = *MakeAnalyticCostModel()->Bind(conditions);
      std::vector<float> phi(static_cast<std::size_t>(model.representation_width()));
      model.Represent(shards, phi, {&load, 1});
      model.ComputeCosts(phi, {&compute, 1});
      return HostTrafficOf(conditions, shards[0]);
    };
    ComputeCost on_device, on_host;
    CommLoad device_load, host_load;
    price(ComputeKernel::kFused, on_device, device_load);
    const HostTraffic traffic = price(ComputeKernel::kOffload, on_host, host_load);
    EXPECT_EQ(host_load.forward, device_load.forward);
    EXPECT_EQ(host_load.backward, device_load.backward);
    EXPECT_FLOAT_EQ(on_host.forward_ms, static_cast<float>(traffic.forward_ms));
    EXPECT_FLOAT_EQ(on_host.backward_ms, static_cast<float>(traffic.backward_ms));
    EXPECT_GT(on_host.total_ms, on_device.total_ms);
  }
}

// What ModelProperties::monotone_shard_costs promises, for tables and conditions of all kinds.
// Floats round.
TEST(AnalyticCostModelTest, ShardCostsAreMonotone) {
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    PricingConditions conditions;
    conditions.ranks_per_host = static_cast<int>(random.Between(1, 8));
    conditions.num_ranks = conditions.ranks_per_host * static_cast<int>(random.Between(1, 4));
    conditions.global_batch_size = random.Between(1, 100'000);
    conditions.bandwidths.inter_host_bytes_per_s *= random.UniformReal() + 0.01;
    Table table;
    table.num_embeddings = random.Between(1, kRows);
    table.pooling_factor = random.Below(8) == 0 ? 0 : random.UniformReal() * 50;
    table.weighted = random.Below(2) == 0;
    table.weight_dtype = random.Below(2) == 0 ? DataType::kFp16 : DataType::kFp32;
    if (random.Below(4) == 0) table.kind = TableKind::kEmbedding;
    if (random.Below(2) == 0) conditions.quantized_comms.forward_dtype = DataType::kFp8;
    if (random.Below(2) == 0) conditions.pod_size = 2;
    const bool prefetches = round % 32 == 0;
    const ComputeKernel kernel = prefetches        ? ComputeKernel::kFusedUvmCaching
                                 : round % 32 == 1 ? ComputeKernel::kOffload
                                                   : ComputeKernel::kFused;
    if (prefetches) conditions.pipeline_type = PipelineType::kTrainPrefetchSparseDist;
    table.reuse_histogram = DefaultReuseHistogram();
    const int hosts_ranks = conditions.ranks_per_host;

    for (const ShardLayout& layout :
         {ShardLayout{ShardingType::kColumnWise, kernel, 1, 0.1},
          ShardLayout{ShardingType::kGridShard, kernel, hosts_ranks, 0.1}}) {
      std::vector<ShardFeatures> widths;
      for (std::int64_t cols = 1; cols <= 300; ++cols) {
        widths.push_back(FeaturesOf(table, layout, table.num_embeddings, cols));
      }
      const std::vector<double> costs = CostsAlone(conditions, widths);
      for (std::size_t i = 1; i < costs.size(); ++i) {
        const double before = costs[i - 1] / static_cast<double>(i);
        EXPECT_LE(costs[i] / static_cast<double>(i + 1), before * (1 + 1e-6)) << "cols " << i + 1;
      }
      widths[0].layout.type = ShardingType::kTableColumnWise;
      if (layout.type == ShardingType::kColumnWise) {
        EXPECT_EQ(CostsAlone(conditions, {widths[0]})[0], costs[0]);
      }
    }
    for (const ShardingType type : {ShardingType::kRowWiseSubset, ShardingType::kTableRowWise}) {
      std::vector<ShardFeatures> holders;
      for (int k = 1; k <= 16; ++k) {
        holders.push_back(FeaturesOf(table, {type, kernel, k, 0.1}, 1, 64));
      }
      const std::vector<double> costs = CostsAlone(conditions, holders);
      for (std::size_t i = 1; i < costs.size(); ++i) {
        EXPECT_LE(costs[i], costs[i - 1]);
        EXPECT_GE(static_cast<double>(i + 1) * costs[i] * (1 + 1e-6),
                  static_cast<double>(i) * costs[i - 1]);
      }
    }
  }
}

// Ids and compute follow the rows, whatever they are in; partial sums are exchanged for all samples
// by every rank, also by one without rows. Four equal blocks cost what TorchRec's even ones do.
TEST(AnalyticCostModelTest, RowsInProportionCostByTheirShare) {
  PricingConditions conditions;
  conditions.num_ranks = 4;
  conditions.ranks_per_host = 4;
  conditions.global_batch_size = 1024;
  Table table;
  table.num_embeddings = 800;
  table.embedding_dim = 64;
  table.pooling_factor = 10;
  table.reuse_histogram = DefaultReuseHistogram();
  for (const TableKind kind : {TableKind::kEmbeddingBag, TableKind::kEmbedding}) {
    table.kind = kind;
    for (const bool prefetched : {false, true}) {
      conditions.pipeline_type =
          prefetched ? PipelineType::kTrainPrefetchSparseDist : PipelineType::kTrainSparseDist;
      ShardLayout layout{.type = ShardingType::kRowWise, .row_shards = 4};
      if (prefetched) {
        layout.kernel = ComputeKernel::kFusedUvmCaching;
        layout.cache_load_factor = 0.1;
      }
      const double even_ms = CostsAlone(conditions, {FeaturesOf(table, layout, 200, 64)})[0];
      layout.in_proportion = true;
      std::vector<ShardFeatures> blocks;
      for (const std::int64_t rows : {0, 100, 200, 400}) {
        blocks.push_back(FeaturesOf(table, layout, rows, 64));
      }
      const std::vector<double> costs = CostsAlone(conditions, blocks);
      EXPECT_NEAR(costs[2], even_ms, 1e-6 * even_ms);
      EXPECT_LT(costs[0], costs[1]);
      EXPECT_NEAR(costs[2] - costs[0], 2 * (costs[1] - costs[0]), 1e-5 * even_ms);
      EXPECT_NEAR(costs[3] - costs[0], 4 * (costs[1] - costs[0]), 1e-5 * even_ms);
      if (kind == TableKind::kEmbeddingBag) {
        EXPECT_GT(costs[0], 0);
      } else {
        EXPECT_EQ(costs[0], 0);
      }
    }
  }
}

// TorchRec's estimators are asked in perf_config_model_test.py.
TEST(AnalyticCostModelTest, OwnCoefficientsReplaceTorchRecsByTypeAndKernel) {
  PricingConditions conditions;
  conditions.num_ranks = 4;
  const double speed = conditions.bandwidths.device_memory_bytes_per_s;
  KernelCoefficients same = {ShardingType::kTableWise, ComputeKernel::kFused, speed, speed,
                             kWholeRowCoefficients};
  KernelCoefficients cached = {ShardingType::kRowWise, ComputeKernel::kFusedUvmCaching, speed / 4,
                               speed};
  cached.of.forward_fixed_ms = 3;
  cached.of.backward_of_forward = 0;
  cached.of.backward = {0, 0, 0, 2};
  const auto model = MakeAnalyticCostModel(CostModelInfo(), {same, cached});
  EXPECT_EQ(model->info().kind, kAnalyticKind);
  EXPECT_THAT(model->info().coverage.sharding_types,
              ::testing::ElementsAre(ShardingType::kTableWise, ShardingType::kRowWise));
  EXPECT_FALSE(model->info().properties.monotone_shard_costs);

  Table table;
  table.num_embeddings = kRows;
  table.embedding_dim = 64;
  table.reuse_histogram = DefaultReuseHistogram();
  std::vector<ShardFeatures> shards = {FeaturesOf(table, {}, kRows, 64)};
  ShardLayout layout{.type = ShardingType::kRowWise, .row_shards = 4};
  shards.push_back(FeaturesOf(table, layout, kRows / 4, 64));
  layout.kernel = ComputeKernel::kFusedUvmCaching;
  layout.cache_load_factor = 1;
  shards.push_back(FeaturesOf(table, layout, kRows / 4, 64));
  layout.type = ShardingType::kRowWiseSubset;
  layout.cache_load_factor = 1.0 / 3;
  shards.push_back(FeaturesOf(table, layout, kRows / 4, 64));
  const auto costs = [&](const CostModel& of) {
    std::vector<float> phi(2 * shards.size());
    std::vector<CommLoad> loads(shards.size());
    of.Bind(conditions)->Represent(shards, phi, loads);
    return phi;
  };
  const std::vector<float> found = costs(*model);
  const std::vector<float> torchrecs = costs(*MakeAnalyticCostModel());
  EXPECT_EQ(found[0], torchrecs[0]);
  EXPECT_EQ(found[1], torchrecs[1]);
  EXPECT_EQ(found[2], torchrecs[2]);  // a kernel without coefficients
  const double rows_ms = 2.0 * kRows / 4 / speed * kMsPerSecond;
  EXPECT_NEAR(found[4], 3 + torchrecs[2], 1e-6);
  EXPECT_NEAR(found[5], rows_ms, 1e-6 * rows_ms);
  EXPECT_NEAR(found[6], 3 + 2 * torchrecs[2], 1e-6);  // at half of the speed
  EXPECT_NEAR(found[7], 2 * rows_ms, 1e-6 * rows_ms);
}

}  // namespace
}  // namespace neuroshard
