#include "common/domain/memory_use.h"

#include <gtest/gtest.h>

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
  EXPECT_EQ(use.weights_bytes, 1000 * 32 * 4);
  EXPECT_EQ(use.optimizer_bytes, 1000 * 4);
  EXPECT_EQ(use.input_bytes, 1024 * 5 / 2 * 8);
  EXPECT_EQ(use.output_bytes, 1024 * 32 * 4);
  EXPECT_EQ(use.total_bytes(), 128000 + 4000 + 20480 + 131072);
}

TEST(ShardMemoryTest, OptimizerStateFollowsTheOptimizer) {
  const auto bytes = [](Optimizer optimizer) {
    return ShardMemory(Request(optimizer), SmallTable(), 1000, 32).optimizer_bytes;
  };
  EXPECT_EQ(bytes(Optimizer::kSgd), 0);
  EXPECT_EQ(bytes(Optimizer::kAdagrad), 128000);
  EXPECT_EQ(bytes(Optimizer::kAdam), 256000);
}

TEST(ShardMemoryTest, WeightsOnlyIsNeuroShardsRule) {
  PlanRequest request = Request(Optimizer::kAdam);
  request.memory.rule = MemoryRule::kWeightsOnly;
  EXPECT_EQ(ShardMemory(request, SmallTable(), 1000, 32).total_bytes(), 128000);
}

TEST(ShardMemoryTest, HalfPrecisionHalvesWeightsAndSaturates) {
  Table table = SmallTable();
  table.weight_dtype = DataType::kBf16;
  EXPECT_EQ(ShardMemory(Request(Optimizer::kSgd), table, 1000, 32).weights_bytes, 64000);
  EXPECT_EQ(
      ShardMemory(Request(Optimizer::kAdam), table, std::int64_t{1} << 48, 65536).weights_bytes,
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

TEST(ReserveBytesTest, FractionAndBytesAddUp) {
  EXPECT_EQ(ReserveBytes({MemoryRule::kFull, 0.25, 10}, 1000), 260);
}

}  // namespace
}  // namespace neuroshard
