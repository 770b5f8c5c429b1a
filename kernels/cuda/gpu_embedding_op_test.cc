#include "kernels/cuda/gpu_embedding_op.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/bytes.h"
#include "kernels/cpu/cpu_embedding_op.h"
#include "kernels/cuda/testing/gpu_devices.h"
#include "kernels/cuda/testing/sequential_gpu.h"
#include "tests/support/embedding_suite.h"

namespace neuroshard::testing {
namespace {

// The same suite for both, so that they cannot come to mean different things.
class CpuDevices {
 public:
  static constexpr DataType kTypes[] = {DataType::kFp32};
  static constexpr std::int64_t kManyHits = 100'000;
  static const char* Unavailable() { return nullptr; }
  StatusOr<std::unique_ptr<EmbeddingOp>> Create(const EmbeddingOpSpec& spec) {
    return CpuEmbeddingOp::Create(MemoryArena::Create(256 * kMiB).value(), spec);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Cpu, EmbeddingSuite, CpuDevices);

INSTANTIATE_TYPED_TEST_SUITE_P(SequentialGpu, EmbeddingSuite, GpuDevices<cuda::SequentialGpu>);

}  // namespace
}  // namespace neuroshard::testing

namespace neuroshard::cuda {
namespace {

TEST(GpuEmbeddingOpTest, ReturnsItsMemoryAndSaysWhenIdsDoNotFit) {
  auto gpu = std::make_shared<SequentialGpu>(4 * kMiB);
  EmbeddingOpSpec spec;
  spec.batch_size = 10;
  spec.tables = {{1000, 16, PoolingMode::kSum}};
  auto op = GpuEmbeddingOp::Create(gpu, spec).value();
  LookupBatch large{std::vector<std::int64_t>(200'000, 7), {0}, {}};
  large.offsets.resize(11, 200'000);
  const Status status = op->SetInputs({large});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(Message(status), ::testing::ContainsRegex("MiB.*MiB"));
  op->Forward();  // without ids: nothing, and no harm
  op->Backward();
  EXPECT_TRUE(op->SetInputs({{{1}, {0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {}}}).ok());
  op.reset();
  EXPECT_EQ(gpu->AvailableBytes(), 4 * kMiB);
}

TEST(GpuEmbeddingOpTest, CachesTakeDeviceMemoryAndTablesTheHosts) {
  auto gpu = std::make_shared<SequentialGpu>(4 * kMiB, 64 * kMiB);
  EmbeddingOpSpec spec;
  spec.batch_size = 1;
  spec.optimizer = Optimizer::kAdam;
  spec.tables = {{.rows = 1 << 16, .cols = 64, .kernel = ComputeKernel::kFusedUvm}};  // 3 x 16 MiB
  EXPECT_EQ(GpuEmbeddingOp::Create(gpu, spec).status(), absl::OkStatus());
  spec.tables[0].kernel = ComputeKernel::kFusedUvmCaching;
  spec.tables[0].cache_load_factor = 0.1;
  EXPECT_EQ(GpuEmbeddingOp::Create(gpu, spec).status(), absl::OkStatus());
  spec.tables[0].cache_load_factor = 0.5;
  const Status cache = GpuEmbeddingOp::Create(gpu, spec).status();
  EXPECT_EQ(cache.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(cache), ::testing::ContainsRegex("8.*MiB do not fit the 4.00 MiB"));
  spec.tables[0].cache_load_factor = 0.1;
  spec.tables.push_back(spec.tables[0]);
  const Status rows = GpuEmbeddingOp::Create(gpu, spec).status();
  EXPECT_EQ(rows.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(rows), ::testing::HasSubstr("in host memory: 96.00 MiB do not fit the 64"));
  EXPECT_EQ(gpu->AvailableBytes(), 4 * kMiB);
  EXPECT_EQ(gpu->AvailableHostBytes(), 64 * kMiB);
}

// Far more than the host could hold: nothing is made of it.
TEST(GpuEmbeddingOpTest, PlansThatDoNotFitAreOutOfMemoryAndMakeNoIds) {
  auto gpu = std::make_shared<SequentialGpu>(4 * kMiB);
  EmbeddingOpSpec spec;
  spec.batch_size = 1000;
  spec.tables = {{1000, 16, PoolingMode::kSum}};
  auto op = GpuEmbeddingOp::Create(gpu, spec).value();
  for (const double pooling_factor : {1e3, 1e9}) {
    const LookupPlan large = PlanZipfLookups({1000, 1000, pooling_factor, false, 1}, 1).value();
    const Status status = op->GenerateInputs({large});
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(Message(status), ::testing::ContainsRegex("ids.*B do not fit the.*MiB"));
  }
  EXPECT_TRUE(op->GenerateInputs({PlanZipfLookups({1000, 1000, 2, false, 1}, 1).value()}).ok());
}

TEST(GpuEmbeddingOpTest, WhatAGpuCannotDoIsNamed) {
  auto gpu = std::make_shared<SequentialGpu>(std::int64_t{1} << 50);
  EmbeddingOpSpec spec;
  spec.batch_size = 1;
  spec.tables = {{10, kMaxCols + 1, PoolingMode::kSum}};
  EXPECT_THAT(Message(GpuEmbeddingOp::Create(gpu, spec).status()),
              ::testing::HasSubstr("tables[0].cols"));
  spec.tables = {{std::int64_t{1} << 31, 4, PoolingMode::kSum},
                 {std::int64_t{1} << 31, 4, PoolingMode::kSum}};
  const Status rows = GpuEmbeddingOp::Create(gpu, spec).status();
  EXPECT_EQ(rows.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(rows), ::testing::HasSubstr("rows"));
}

// A hot row costs levels, not steps in one place.
TEST(GpuEmbeddingOpTest, LevelsGrowWithTheLogarithmOfTheIds) {
  auto gpu = std::make_shared<SequentialGpu>(64 * kMiB);
  EmbeddingOpSpec spec;
  spec.batch_size = 1;
  spec.tables = {{10, 4, PoolingMode::kSum}};
  auto op = GpuEmbeddingOp::Create(gpu, spec).value();
  const auto updates = [&](std::int64_t hits) {
    EXPECT_TRUE(op->SetInputs({{std::vector<std::int64_t>(hits, 3), {0, hits}, {}}}).ok());
    const int before = gpu->updates();
    op->Backward();
    return gpu->updates() - before;
  };
  EXPECT_EQ(updates(32), 1);
  EXPECT_EQ(updates(33), 2);
  EXPECT_EQ(updates(100'000), 4);
}

}  // namespace
}  // namespace neuroshard::cuda
