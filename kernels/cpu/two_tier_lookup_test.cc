// Tables in host memory give what tables in the device's memory give, to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/bytes.h"
#include "common/base/random.h"
#include "kernels/cpu/cpu_embedding_op.h"
#include "tests/support/op_beside_oracle.h"

namespace neuroshard {
namespace {

using ::testing::HasSubstr;
using testing::RandomLookups;
using testing::RandomNumbers;

class TwoTierLookupTest : public ::testing::TestWithParam<Optimizer> {};

TEST_P(TwoTierLookupTest, RandomTracesGiveWhatDeviceMemoryGives) {
  Random random(41);
  for (int trial = 0; trial < 6; ++trial) {
    EmbeddingOpSpec plain;
    plain.optimizer = GetParam();
    plain.batch_size = random.Between(1, 40);
    plain.learning_rate = 0.1F;
    plain.seed = random.Next();
    for (std::int64_t t = random.Between(1, 4); t > 0; --t) {
      plain.tables.push_back({.rows = random.Between(1, 900),
                              .cols = random.Between(1, 90),
                              .pooling_mode = kWords<PoolingMode>[random.Below(3)].value});
    }
    EmbeddingOpSpec tiered = plain;
    for (EmbeddingTableSpec& table : tiered.tables) {
      table.kernel =
          random.Below(3) == 0 ? ComputeKernel::kFusedUvm : ComputeKernel::kFusedUvmCaching;
      if (table.kernel == ComputeKernel::kFusedUvm) continue;
      table.cache_load_factor = 0.01 + 0.99 * random.UniformReal();
    }
    auto in_device = CpuEmbeddingOp::Create(MemoryArena::Create(64 * kMiB).value(), plain).value();
    auto op = CpuEmbeddingOp::Create(MemoryArena::Create(64 * kMiB).value(), tiered).value();
    for (int batch = 0; batch < 8; ++batch) {
      std::vector<LookupBatch> inputs;
      for (const EmbeddingTableSpec& table : plain.tables) {
        inputs.push_back(
            RandomLookups(random, table.rows, plain.batch_size, 30,
                          table.pooling_mode != PoolingMode::kNone && random.Below(2) == 0));
      }
      ASSERT_TRUE(in_device->SetInputs(inputs).ok());
      ASSERT_TRUE(op->SetInputs(inputs).ok());
      if (batch % 3 == 1) op->ForgetHostRows();
      if (batch % 4 != 3) {  // else backward fetches
        in_device->Forward();
        op->Forward();
        ASSERT_EQ(op->Output(), in_device->Output());
      }
      if (batch % 3 == 2) op->ForgetHostRows();
      in_device->Backward();
      op->Backward();
      for (int t = 0; t < std::ssize(plain.tables); ++t) {
        ASSERT_EQ(op->Weights(t), in_device->Weights(t)) << "table " << t;
        ASSERT_EQ(op->OptimizerState(t), in_device->OptimizerState(t)) << "table " << t;
      }
      if (batch != 4) continue;
      const std::vector<float> weights =
          RandomNumbers(random, plain.tables[0].rows * plain.tables[0].cols);
      ASSERT_TRUE(in_device->SetWeights(0, weights).ok());
      ASSERT_TRUE(op->SetWeights(0, weights).ok());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, TwoTierLookupTest,
                         ::testing::ValuesIn(CpuEmbeddingOp::Abilities().optimizers),
                         [](const auto& of) { return std::string(ToText(of.param)); });

TEST(TwoTierLookupTest, CachesTakeDeviceMemoryAndTablesTheHosts) {
  EmbeddingOpSpec spec;
  spec.batch_size = 1;
  spec.tables = {{.rows = 1 << 16, .cols = 64, .kernel = ComputeKernel::kFusedUvm}};  // 16 MiB
  const auto create = [&spec] {
    return CpuEmbeddingOp::Create(MemoryArena::Create(4 * kMiB).value(), spec).status();
  };
  EXPECT_EQ(create(), absl::OkStatus());
  spec.tables[0].kernel = ComputeKernel::kFusedUvmCaching;
  spec.tables[0].cache_load_factor = 0.1;
  EXPECT_EQ(create(), absl::OkStatus());
  spec.tables[0].cache_load_factor = 0.5;
  EXPECT_EQ(create().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(create()), HasSubstr("caches"));
  spec.tables[0].cache_load_factor = 1e-9;
  spec.tables[0].rows = std::int64_t{1} << 50;
  EXPECT_EQ(create().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(create()), HasSubstr("host memory"));
}

TEST(TwoTierLookupTest, LoadFactorsBelongToCaches) {
  EmbeddingOpSpec spec;
  spec.batch_size = 1;
  const auto error = [&spec](ComputeKernel kernel, double factor) {
    spec.tables = {{.rows = 10, .cols = 4, .kernel = kernel, .cache_load_factor = factor}};
    return Message(CpuEmbeddingOp::Create(MemoryArena::Create(4 * kMiB).value(), spec).status());
  };
  EXPECT_THAT(error(ComputeKernel::kFusedUvmCaching, 0), HasSubstr("must be in (0, 1]"));
  EXPECT_THAT(error(ComputeKernel::kFusedUvmCaching, 1.5), HasSubstr("got 1.5"));
  EXPECT_THAT(error(ComputeKernel::kFusedUvm, 0.5), HasSubstr("must be 0 for fused_uvm"));
  EXPECT_THAT(error(ComputeKernel::kOffload, 0), HasSubstr("compute_kernel: this device has"));
}

}  // namespace
}  // namespace neuroshard
