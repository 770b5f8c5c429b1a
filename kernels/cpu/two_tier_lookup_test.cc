// Tables in host memory give what tables in the device's memory give, to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/bytes.h"
#include "kernels/cpu/cpu_embedding_op.h"
#include "tests/support/tables_in_host_memory.h"

namespace neuroshard {
namespace {

using ::testing::HasSubstr;

class TwoTierLookupTest : public ::testing::TestWithParam<Optimizer> {};

TEST_P(TwoTierLookupTest, RandomTracesGiveWhatDeviceMemoryGives) {
  const auto create = [](const EmbeddingOpSpec& spec) {
    return CpuEmbeddingOp::Create(MemoryArena::Create(64 * kMiB).value(), spec);
  };
  constexpr DataType kTypes[] = {DataType::kFp32};
  testing::CompareWithDeviceMemory(create, GetParam(), kTypes, 6);
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
