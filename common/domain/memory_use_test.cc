#include "common/domain/memory_use.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace neuroshard {
namespace {

PlanRequest Request(Optimizer optimizer) {
  PlanRequest request;
  request.global_batch_size = 1024;
  request.optimizer = optimizer;
  return request;
}

Table SmallTable() {
  Table table;
  table.num_embeddings = 1000;
  table.embedding_dim = 64;
  table.pooling_factor = 2.5;
  return table;
}

TEST(ShardMemoryTest, CountsEveryKind) {
  const MemoryUse use = ShardMemory(Request(Optimizer::kRowwiseAdagrad), SmallTable(), 1000, 32);
  EXPECT_EQ(use.weights[MemoryTier::kDevice], 1000 * 32 * 4);
  EXPECT_EQ(use.optimizer[MemoryTier::kDevice], 1000 * 4);
  EXPECT_EQ(use.input_bytes, 1024 * 5 / 2 * 8);
  EXPECT_EQ(use.output_bytes, 1024 * 32 * 4);
  EXPECT_EQ(use.total_bytes(), 128000 + 4000 + 20480 + 131072);
}

// Keys beside the rows, and rows rounded up: where the rows are, under every rule.
TEST(ShardMemoryTest, HashTablesTakeSpareRowsAndBytesBesideThem) {
  PlanRequest request = Request(Optimizer::kAdagrad);
  request.topology.devices = {{0, 1 << 30}, {0, 1 << 30}};
  Table table = SmallTable();
  table.allocated_rows = 1024;
  table.extra_bytes_per_row = 24;
  const std::int64_t weights = 1024 * 32 * 4;
  const std::int64_t beside = 1024 * 24;
  for (const MemoryRule rule :
       {MemoryRule::kFull, MemoryRule::kWeightsOnly, MemoryRule::kTorchRec}) {
    request.memory.rule = rule;
    const MemoryUse whole = ShardMemory(request, table, 1000, 32);
    EXPECT_EQ(whole.weights[MemoryTier::kDevice], weights + beside);
    EXPECT_EQ(whole.optimizer[MemoryTier::kDevice], rule == MemoryRule::kWeightsOnly ? 0 : weights);
    const ShardLayout half = {.type = ShardingType::kRowWise, .row_shards = 2};
    const MemoryUse cut = ShardMemory(request, table, half, 500, 32);
    EXPECT_EQ(cut.weights[MemoryTier::kDevice], (weights + beside) / 2);
    MemoryUse plain = ShardMemory(request, SmallTable(), half, 500, 32);
    EXPECT_EQ(cut.input_bytes, plain.input_bytes);
    EXPECT_EQ(cut.output_bytes, plain.output_bytes);
    const ShardLayout uvm = {.kernel = ComputeKernel::kFusedUvm};
    const MemoryUse far = ShardMemory(request, table, uvm, 1000, 32);
    EXPECT_EQ(far.weights[MemoryTier::kHost], weights + beside);
    EXPECT_EQ(far.weights[MemoryTier::kDevice], 0);
    const ShardLayout ssd = {.kernel = ComputeKernel::kKeyValue, .cache_load_factor = 0.5};
    EXPECT_EQ(ShardMemory(request, table, ssd, 1000, 32).weights[MemoryTier::kSsd],
              weights + beside);
  }
}

// What FBGEMM has in weights_dev leaves the device: not keys beside rows, nor rows that are elsewhere
// or replicated.
TEST(ShardMemoryTest, WeightsOfFusedAreStashed) {
  PlanRequest request = Request(Optimizer::kAdagrad);
  request.topology.devices = {{0, 1 << 30}, {0, 1 << 30}};
  Table table = SmallTable();
  table.extra_bytes_per_row = 24;
  Table stashed = table;
  stashed.stash_weights = true;
  const std::int64_t weights = 1000 * 32 * 4;
  for (const MemoryRule rule :
       {MemoryRule::kFull, MemoryRule::kWeightsOnly, MemoryRule::kTorchRec}) {
    request.memory.rule = rule;
    request.topology.host_memory_bytes.clear();
    MemoryUse expected = ShardMemory(request, table, 1000, 32);
    EXPECT_EQ(expected.stashed_bytes, 0);
    expected.stashed_bytes = weights;
    EXPECT_EQ(ShardMemory(request, stashed, 1000, 32), expected);
    request.topology.host_memory_bytes = {1 << 30};
    expected.weights[MemoryTier::kHost] = weights;
    EXPECT_EQ(ShardMemory(request, stashed, 1000, 32), expected);
    EXPECT_EQ(expected.by_tier()[MemoryTier::kHost], weights);
    MemoryUse twice = expected;
    twice += expected;
    EXPECT_EQ(twice.stashed_bytes, 2 * weights);
    for (const ShardLayout& layout :
         {ShardLayout{.kernel = ComputeKernel::kFusedUvm},
          ShardLayout{.kernel = ComputeKernel::kFusedUvmCaching, .cache_load_factor = 0.5},
          ShardLayout{.type = ShardingType::kDataParallel},
          ShardLayout{.type = ShardingType::kDataParallel, .kernel = ComputeKernel::kDense}}) {
      EXPECT_EQ(ShardMemory(request, stashed, layout, 1000, 32),
                ShardMemory(request, table, layout, 1000, 32));
    }
  }
}

TEST(ShardMemoryTest, OptimizerStateFollowsTheOptimizer) {
  const auto bytes = [](Optimizer optimizer) {
    return ShardMemory(Request(optimizer), SmallTable(), 1000, 32).optimizer[MemoryTier::kDevice];
  };
  EXPECT_EQ(bytes(Optimizer::kSgd), 0);
  EXPECT_EQ(bytes(Optimizer::kAdagrad), 128000);
  EXPECT_EQ(bytes(Optimizer::kAdam), 256000);
}

TEST(ShardMemoryTest, ATableMayHaveAnOptimizerOfItsOwn) {
  PlanRequest request = Request(Optimizer::kAdam);
  request.topology.devices.resize(2);
  Table table = SmallTable();
  for (const MemoryRule rule : {MemoryRule::kFull, MemoryRule::kTorchRec}) {
    request.memory.rule = rule;
    table.optimizer = Optimizer::kAdagrad;
    EXPECT_EQ(ShardMemory(request, table, 1000, 32).optimizer[MemoryTier::kDevice], 128000);
    table.optimizer = Optimizer::kSgd;
    EXPECT_EQ(ShardMemory(request, table, 1000, 32).optimizer[MemoryTier::kDevice], 0);
  }
}

TEST(ShardMemoryTest, WeightsOnlyIsNeuroShardsRule) {
  PlanRequest request = Request(Optimizer::kAdam);
  request.memory.rule = MemoryRule::kWeightsOnly;
  EXPECT_EQ(ShardMemory(request, SmallTable(), 1000, 32).total_bytes(), 128000);
}

TEST(ShardMemoryTest, HalfPrecisionHalvesWeightsAndSaturates) {
  Table table = SmallTable();
  table.weight_dtype = DataType::kBf16;
  EXPECT_EQ(ShardMemory(Request(Optimizer::kSgd), table, 1000, 32).weights[MemoryTier::kDevice],
            64000);
  EXPECT_EQ(ShardMemory(Request(Optimizer::kAdam), table, std::int64_t{1} << 48, 65536)
                .weights[MemoryTier::kDevice],
            std::int64_t{1} << 52);
}

// A request may have devices of 2^50 bytes; a size that was cut off must not look as if it fitted.
TEST(ShardMemoryTest, WhatSaturatesFitsOnNoDevice) {
  constexpr std::int64_t kLargestDevice = std::int64_t{1} << 50;
  PlanRequest request = Request(Optimizer::kSgd);
  request.memory.rule = MemoryRule::kWeightsOnly;
  EXPECT_GT(ShardMemory(request, SmallTable(), std::int64_t{1} << 48, 65536).total_bytes(),
            kLargestDevice);
}

TEST(ShardMemoryTest, OptimizersKeepFloatsOfNarrowWeights) {
  Table table = SmallTable();
  const auto bytes = [&](Optimizer optimizer, DataType dtype) {
    table.weight_dtype = dtype;
    return ShardMemory(Request(optimizer), table, 1000, 32).optimizer[MemoryTier::kDevice];
  };
  for (const DataType dtype : {DataType::kFp16, DataType::kInt8}) {
    EXPECT_EQ(bytes(Optimizer::kPartialRowwiseAdam, dtype), 1000 * (32 * 4 + 4));
    EXPECT_EQ(bytes(Optimizer::kLamb, dtype), 1000 * 32 * 8);
    EXPECT_EQ(bytes(Optimizer::kLarsSgd, dtype), 1000 * 32 * 4);
    EXPECT_EQ(bytes(Optimizer::kRowwiseAdagrad, dtype), 1000 * 4);
  }
  for (const DataType dtype : {DataType::kFp8, DataType::kFp16, DataType::kBf16}) {
    EXPECT_EQ(bytes(Optimizer::kAdam, dtype), 1000 * 32 * 8);
    EXPECT_EQ(bytes(Optimizer::kAdagrad, dtype), 1000 * 32 * 4);
  }
}

TEST(ShardMemoryTest, WhatIsServedHasNeitherStateNorGradients) {
  ShardLayout replica = {.type = ShardingType::kDataParallel, .kernel = ComputeKernel::kDense};
  for (const MemoryRule rule : {MemoryRule::kFull, MemoryRule::kTorchRec}) {
    PlanRequest request = Request(Optimizer::kNone);
    request.topology.devices = {{0, 1 << 30}};
    request.memory.rule = rule;
    Table table = SmallTable();
    table.optimizer = Optimizer::kAdam;  // what trained it
    for (const ShardLayout& layout : {ShardLayout(), replica}) {
      const MemoryUse use = ShardMemory(request, table, layout, 1000, 32);
      EXPECT_EQ(use.optimizer, TierBytes());
      EXPECT_EQ(use.weights[MemoryTier::kDevice], 1000 * 32 * 4);
      EXPECT_GT(use.input_bytes, 0);
    }
  }
}

TEST(ShardMemoryTest, AHostThatUpdatesRowsKeepsAllOfTheirState) {
  ShardLayout layout;
  layout.kernel = ComputeKernel::kOffload;
  const MemoryUse by_host =
      ShardMemory(Request(Optimizer::kPartialRowwiseAdam), SmallTable(), layout, 1000, 32);
  EXPECT_EQ(by_host.optimizer[MemoryTier::kDevice], 0);
  EXPECT_EQ(by_host.optimizer[MemoryTier::kHost], 1000 * (32 * 4 + 4));
  layout.kernel = ComputeKernel::kFusedUvm;
  const MemoryUse by_device =
      ShardMemory(Request(Optimizer::kPartialRowwiseAdam), SmallTable(), layout, 1000, 32);
  EXPECT_EQ(by_device.optimizer[MemoryTier::kDevice], 1000 * 4);
  EXPECT_EQ(by_device.optimizer[MemoryTier::kHost], 1000 * 32 * 4);
}

// 21 x 2 bytes of values round up to 48, with Adam's state 126 to 128; 1000 rows to 1008.
TEST(ShardMemoryTest, DynamicTablesHaveKeysOnTheDeviceAndValuesByTheirShare) {
  PlanRequest request = Request(Optimizer::kAdam);
  request.topology.devices = {{0, 1 << 30}};
  Table table = SmallTable();
  table.weight_dtype = DataType::kFp16;
  table.extra_bytes_per_row = 8;
  const std::int64_t keys = 1008 * (17 + 8) + 1008 * 4 / 128 + 1;
  for (const MemoryRule rule :
       {MemoryRule::kFull, MemoryRule::kWeightsOnly, MemoryRule::kTorchRec}) {
    request.memory.rule = rule;
    const std::int64_t values = 1008 * (rule == MemoryRule::kWeightsOnly ? 48 : 128);
    const auto use = [&](ComputeKernel kernel, double share) {
      const ShardLayout layout = {.kernel = kernel, .cache_load_factor = share};
      return ShardMemory(request, table, layout, 1000, 21);
    };
    const MemoryUse hybrid = use(ComputeKernel::kDynamicHybrid, 0.25);
    EXPECT_EQ(hybrid.weights[MemoryTier::kDevice], values / 4 + keys);
    EXPECT_EQ(hybrid.weights[MemoryTier::kHost], values * 3 / 4);
    EXPECT_EQ(hybrid.optimizer, TierBytes());
    EXPECT_EQ(hybrid.caches, TierBytes());
    const MemoryUse caching = use(ComputeKernel::kDynamicCaching, 0.25);
    EXPECT_EQ(caching.weights[MemoryTier::kDevice], values / 4 + keys);
    EXPECT_EQ(caching.weights[MemoryTier::kHost], values);
    EXPECT_EQ(use(ComputeKernel::kDynamicHybrid, 1).weights[MemoryTier::kHost], 0);
    const MemoryUse plain = ShardMemory(request, table, {}, 1000, 21);
    EXPECT_EQ(hybrid.input_bytes, plain.input_bytes);
    EXPECT_EQ(hybrid.output_bytes, plain.output_bytes);
    table.allocated_rows = 2000;
    EXPECT_EQ(use(ComputeKernel::kDynamicCaching, 0.25).weights[MemoryTier::kHost],
              values / 1008 * 2000);
    table.allocated_rows = 0;
  }
}

TEST(ShardMemoryTest, RowsOfInt8HaveAScaleAndABias) {
  Table table = SmallTable();
  table.weight_dtype = DataType::kInt8;
  EXPECT_EQ(ShardMemory(Request(Optimizer::kSgd), table, 1000, 32).weights[MemoryTier::kDevice],
            1000 * 40);
  table.weight_dtype = DataType::kFp8;
  EXPECT_EQ(ShardMemory(Request(Optimizer::kSgd), table, 1000, 32).weights[MemoryTier::kDevice],
            1000 * 32);
}

TEST(ShardMemoryTest, RowsOfFourAndTwoBitsHaveWholeBytesAndAScaleAndABias) {
  PlanRequest request = Request(Optimizer::kRowwiseAdagrad);
  Table table = SmallTable();
  const auto bytes = [&](DataType dtype, std::int64_t cols) {
    table.weight_dtype = dtype;
    return ShardMemory(request, table, 1000, cols).weights[MemoryTier::kDevice];
  };
  EXPECT_EQ(bytes(DataType::kInt4, 32), 1000 * (16 + 4));
  EXPECT_EQ(bytes(DataType::kInt2, 32), 1000 * (8 + 4));
  EXPECT_EQ(bytes(DataType::kInt4, 5), 1000 * (3 + 4)) << "half a byte is left over";
  EXPECT_EQ(bytes(DataType::kInt2, 5), 1000 * (2 + 4));
  request.memory.rule = MemoryRule::kWeightsOnly;
  EXPECT_EQ(bytes(DataType::kInt4, 4), 1000 * (2 + 4)) << "the narrowest cut";
  EXPECT_EQ(bytes(DataType::kInt2, 4), 1000 * (1 + 4));
  // TorchRec's estimator counts no scale and bias of a table that it trains, and outputs by the bit.
  request.memory.rule = MemoryRule::kTorchRec;
  request.topology.devices = {{0, 1 << 30}};
  table.output_dtype = DataType::kInt2;
  EXPECT_EQ(bytes(DataType::kInt4, 32), 1000 * 16);
  EXPECT_EQ(ShardMemory(request, table, 1000, 32).output_bytes, 1024 * 32 / 4);
}

TEST(ShardMemoryTest, OutputsAreOfBagsOrOfIds) {
  Table table = SmallTable();
  const PlanRequest request = Request(Optimizer::kSgd);
  const auto bytes = [&](const ShardLayout& layout, std::int64_t rows) {
    return ShardMemory(request, table, layout, rows, 32).output_bytes;
  };
  table.output_dtype = DataType::kBf16;
  EXPECT_EQ(bytes({}, 1000), 1024 * 32 * 2);
  table.features = {"a", "b"};
  table.num_poolings = {1, 3};
  EXPECT_EQ(bytes({}, 1000), 4 * 1024 * 32 * 2);
  table.feature_batch_sizes = {100, 10};
  EXPECT_EQ(bytes({}, 1000), 130 * 32 * 2);
  table.kind = TableKind::kEmbedding;
  EXPECT_EQ(bytes({}, 1000), 2560 * 32 * 2);
  EXPECT_EQ(bytes({ShardingType::kRowWise, ComputeKernel::kFused, 4}, 250), 640 * 32 * 2);
}

TEST(ShardMemoryTest, PipelinesHoldTheIdsOfSeveralBatches) {
  PlanRequest request = Request(Optimizer::kSgd);
  const auto bytes = [&](PipelineType pipeline, const ShardLayout& layout) {
    request.pipeline_type = pipeline;
    const MemoryUse use = ShardMemory(request, SmallTable(), layout, 1000, 64);
    EXPECT_EQ(use.output_bytes, 1024 * 64 * 4);
    return use.input_bytes;
  };
  const ShardLayout cached = {ShardingType::kTableWise, ComputeKernel::kFusedUvmCaching, 1, 0.25};
  EXPECT_EQ(bytes(PipelineType::kTrainSparseDist, {}), 2 * 2560 * 8);
  EXPECT_EQ(bytes(PipelineType::kTrainSparseDist, cached), 2 * 2560 * 8);
  EXPECT_EQ(bytes(PipelineType::kTrainPrefetchSparseDist, {}), 3 * 2560 * 8);
  EXPECT_EQ(bytes(PipelineType::kTrainPrefetchSparseDist, cached), 10 * 2560 * 8);
}

// FBGEMM keeps state of whole rows on the device, and other state out of the cache.
TEST(ShardMemoryTest, RowsInHostMemory) {
  const auto use = [](ComputeKernel kernel, double cached, MemoryRule rule) {
    PlanRequest request = Request(Optimizer::kPartialRowwiseAdam);
    request.memory.rule = rule;
    MemoryUse memory =
        ShardMemory(request, SmallTable(), {ShardingType::kTableWise, kernel, 1, cached}, 1000, 64);
    memory.input_bytes = memory.output_bytes = 0;
    return memory;
  };
  MemoryUse expected = {.weights = {0, 256000, 0}, .optimizer = {4000, 256000, 0}};
  EXPECT_EQ(use(ComputeKernel::kFusedUvm, 0, MemoryRule::kFull), expected);
  expected.weights[MemoryTier::kDevice] = 64000;
  expected.caches[MemoryTier::kDevice] = 1000 * 4 + 250 * 16;
  EXPECT_EQ(use(ComputeKernel::kFusedUvmCaching, 0.25, MemoryRule::kFull), expected);
  EXPECT_EQ(use(ComputeKernel::kFusedUvmCaching, 0.25, MemoryRule::kWeightsOnly),
            (MemoryUse{.weights = {64000, 256000, 0}}));
}

// FBGEMM keeps all optimizer state of rows on SSD on the device, in floats.
TEST(ShardMemoryTest, RowsOnSsd) {
  Table table = SmallTable();
  const auto use = [&](Optimizer optimizer, double cached, MemoryRule rule = MemoryRule::kFull) {
    PlanRequest request = Request(optimizer);
    request.memory.rule = rule;
    MemoryUse memory = ShardMemory(
        request, table, {ShardingType::kTableWise, ComputeKernel::kKeyValue, 1, cached}, 1000, 64);
    memory.input_bytes = memory.output_bytes = 0;
    return memory;
  };
  MemoryUse expected = {.weights = {64000}, .optimizer = {4000}, .caches = {250 * 16}};
  expected.weights[MemoryTier::kSsd] = 256000;
  EXPECT_EQ(use(Optimizer::kRowwiseAdagrad, 0.25), expected);
  expected.optimizer[MemoryTier::kDevice] = 2 * 256000 + 4000;
  EXPECT_EQ(use(Optimizer::kAdam, 0.25), expected);
  table.weight_dtype = DataType::kFp16;
  EXPECT_EQ(use(Optimizer::kAdam, 0.25).optimizer[MemoryTier::kDevice],
            expected.optimizer[MemoryTier::kDevice]);
  EXPECT_EQ(use(Optimizer::kAdam, 0.25).by_tier()[MemoryTier::kSsd], 128000);
  expected = {.weights = {32000}};
  expected.weights[MemoryTier::kSsd] = 128000;
  EXPECT_EQ(use(Optimizer::kAdam, 0.25, MemoryRule::kWeightsOnly), expected);
}

TEST(ShardMemoryTest, CachesOfRowsOnSsdAreAsLargeAsStated) {
  Table table = SmallTable();
  const ShardLayout layout = {ShardingType::kTableWise, ComputeKernel::kKeyValue, 1, 0.25};
  const auto use = [&](std::int64_t rows) {
    return ShardMemory(Request(Optimizer::kSgd), table, layout, rows, 64);
  };
  table.max_l1_cache_bytes = 25600;  // 100 rows
  table.l2_cache_bytes = 51200;
  EXPECT_EQ(use(1000).weights[MemoryTier::kDevice], 25600);
  EXPECT_EQ(use(1000).caches[MemoryTier::kDevice], 1600);
  EXPECT_EQ(use(1000).by_tier()[MemoryTier::kHost], 51200);
  EXPECT_DOUBLE_EQ(CachedShare(table, layout, 1000, 64), 0.1);
  EXPECT_DOUBLE_EQ(HostCachedShare(table, layout, 1000, 64), 0.2);
  EXPECT_EQ(use(40).weights[MemoryTier::kDevice], 40 * 256 / 4);
  EXPECT_EQ(use(40).by_tier()[MemoryTier::kHost], 40 * 256);
  EXPECT_EQ(use(0).weights[MemoryTier::kDevice] + use(0).by_tier()[MemoryTier::kHost], 0);
  table.max_l1_cache_bytes.reset();
  EXPECT_EQ(use(1000).weights[MemoryTier::kDevice], 64000);
}

class TorchRecMemoryTest : public ::testing::Test {
 protected:
  TorchRecMemoryTest() { request_.memory.rule = MemoryRule::kTorchRec; }

  void SetSamples(int ranks, int samples_of_a_rank) {
    request_.topology.devices.resize(static_cast<std::size_t>(ranks));
    request_.global_batch_size = std::int64_t{ranks} * samples_of_a_rank;
  }

  std::int64_t Bytes(const Table& table, ShardingType type, int row_shards, std::int64_t rows,
                     std::int64_t cols) const {
    const ComputeKernel kernel =
        type == ShardingType::kDataParallel ? ComputeKernel::kDense : ComputeKernel::kFused;
    return ShardMemory(request_, table, {type, kernel, row_shards}, rows, cols).total_bytes();
  }

  PlanRequest request_;
};

// The golden values of TorchRec's own tests: tables of (100 + 10 i) x (20 + 20 i) on 8 ranks, 4 on
// a host, 256 samples each.
TEST_F(TorchRecMemoryTest, GoldenTables) {
  SetSamples(8, 256);
  const std::vector<std::vector<int>> poolings = {{1}, {1, 3, 5}, {8, 2}, {2, 1, 3, 7}};
  const std::int64_t widths[] = {20, 20, 20, 40};
  std::vector<std::int64_t> row_wise, last_row_wise, table_row_wise, column_wise;
  for (std::size_t i = 0; i < 4; ++i) {
    Table table;
    table.num_embeddings = 100 + 10 * static_cast<std::int64_t>(i);
    table.embedding_dim = 20 + 20 * static_cast<std::int64_t>(i);
    table.features.resize(poolings[i].size());
    table.pooling_factor = std::accumulate(poolings[i].begin(), poolings[i].end(), 0);
    const std::int64_t dim = table.embedding_dim;
    const auto rows_of_8 = CeilBlocks(table.num_embeddings, 8);
    const auto rows_of_4 = CeilBlocks(table.num_embeddings, 4);
    row_wise.push_back(Bytes(table, ShardingType::kRowWise, 8, rows_of_8.front().size, dim));
    last_row_wise.push_back(Bytes(table, ShardingType::kRowWise, 8, rows_of_8.back().size, dim));
    table_row_wise.push_back(
        Bytes(table, ShardingType::kTableRowWise, 4, rows_of_4.front().size, dim));
    column_wise.push_back(
        Bytes(table, ShardingType::kColumnWise, 1, table.num_embeddings, widths[i]));
  }
  EXPECT_EQ(row_wise, (std::vector<std::int64_t>{166928, 1003712, 1007120, 2653504}));
  EXPECT_EQ(last_row_wise, (std::vector<std::int64_t>{166608, 1003392, 1007120, 2651584}));
  EXPECT_EQ(table_row_wise, (std::vector<std::int64_t>{169936, 1024384, 1031200, 2685248}));
  EXPECT_EQ(column_wise, (std::vector<std::int64_t>{188224, 647776, 501120, 1544512}));
}

// What TorchRec's code gave on two hosts of 8 ranks, 4096 samples each, 20 ids a sample.
TEST_F(TorchRecMemoryTest, GoldenTypes) {
  SetSamples(16, 4096);
  Table table;
  table.num_embeddings = 1'000'000;
  table.embedding_dim = 128;
  table.pooling_factor = 20;
  EXPECT_EQ(Bytes(table, ShardingType::kTableWise, 1, 1'000'000, 128), 556040192);
  EXPECT_EQ(Bytes(table, ShardingType::kRowWise, 16, 62500, 128), 66209792);
  EXPECT_EQ(Bytes(table, ShardingType::kTableRowWise, 8, 125000, 128), 98865152);
  EXPECT_EQ(Bytes(table, ShardingType::kGridShard, 8, 125000, 64), 50087936);
  EXPECT_EQ(Bytes(table, ShardingType::kDataParallel, 1, 1'000'000, 128), 514752512);
  EXPECT_EQ(Bytes(table, ShardingType::kColumnWise, 1, 1'000'000, 64), 283262976);
}

// Of rows in proportion a rank with three quarters of the rows has three quarters of the ids, under
// every rule that counts ids; even blocks have a half each under TorchRec's.
TEST_F(TorchRecMemoryTest, RowsInProportionHaveTheirShareOfTheIds) {
  SetSamples(2, 100);
  Table table;
  table.num_embeddings = 40;
  table.embedding_dim = 4;
  table.pooling_factor = 6;
  const auto input_bytes = [&](std::int64_t rows, bool in_proportion) {
    const ShardLayout layout{
        .type = ShardingType::kRowWise, .row_shards = 2, .in_proportion = in_proportion};
    return ShardMemory(request_, table, layout, rows, 4).input_bytes;
  };
  constexpr std::int64_t kAllIds = 2 * 100 * 6 * 8;
  EXPECT_EQ(input_bytes(30, false), kAllIds / 2);
  EXPECT_EQ(input_bytes(30, true), kAllIds * 3 / 4);
  EXPECT_EQ(input_bytes(10, true), kAllIds / 4);
  EXPECT_EQ(input_bytes(0, true), 0);
  request_.memory.rule = MemoryRule::kFull;
  EXPECT_EQ(input_bytes(30, true), kAllIds * 3 / 4);
  EXPECT_EQ(input_bytes(0, true), 0);
}

// 2 ranks of 100 samples: a feature with half an id a sample has half a vector.
TEST_F(TorchRecMemoryTest, AFeatureHasAVectorWhereASampleHasIds) {
  SetSamples(2, 100);
  Table table;
  table.num_embeddings = 10;
  table.embedding_dim = 4;
  table.features = {"a", "b"};
  const auto output_bytes = [&] {
    return ShardMemory(request_, table, ShardLayout{}, 10, 4).output_bytes;
  };
  table.pooling_factor = 2;
  EXPECT_EQ(output_bytes(), 2 * 200 * 4 * 4);
  table.pooling_factor = 1;
  EXPECT_EQ(output_bytes(), 200 * 4 * 4);
  table.pooling_factors = {0, 1};
  EXPECT_EQ(output_bytes(), 200 * 4 * 4);
  table.pooling_factors = {0.25, 50};
  EXPECT_EQ(output_bytes(), 250 * 4 * 4);
}

TEST_F(TorchRecMemoryTest, RoundsUpAndTakesNothingForNoRows) {
  SetSamples(3, 7);
  Table table;
  table.num_embeddings = 5;
  table.embedding_dim = 12;
  table.pooling_factor = 0.3;
  table.weight_dtype = DataType::kFp16;
  table.weighted = true;
  request_.optimizer = Optimizer::kRowwiseAdagrad;
  const ShardLayout layout{ShardingType::kRowWise, ComputeKernel::kFused, 3};
  const MemoryUse use = ShardMemory(request_, table, layout, 2, 8);
  EXPECT_EQ(use.weights[MemoryTier::kDevice], 2 * 8 * 2);
  EXPECT_EQ(use.optimizer[MemoryTier::kDevice], 3);  // 32 / 12
  EXPECT_EQ(use.input_bytes, 17);                    // 7 x 0.3 x 8 = 16.8
  EXPECT_EQ(use.output_bytes, 101);                  // 7 x 3 x 0.3 x 8 x 2 = 100.8
  EXPECT_EQ(ShardMemory(request_, table, layout, 0, 8), MemoryUse());
}

TEST(ReserveBytesTest, FractionAndBytesAddUp) {
  EXPECT_EQ(ReserveBytes({MemoryRule::kFull, 0.25, 10}, 1000), 260);
}

}  // namespace
}  // namespace neuroshard
