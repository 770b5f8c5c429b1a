// Tables in host memory that may not be pinned. With FAKE_GPU_FAIL=cudaHostAlloc:2:2: the first call
// is the gate's, the second that of a table's rows, which is out of memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "kernels/cuda/cuda_device.h"
#include "tests/fake_gpu/fake_runtime.h"
#include "tests/support/no_collectives.h"

namespace neuroshard {
namespace {

using testing::NoCollectives;

TEST(HostMemoryTest, WhatCannotBePinnedIsOutOfMemoryAndNothingStays) {
  auto device = CudaDevice::Create(0, std::make_shared<NoCollectives>()).value();
  EmbeddingOpSpec spec;
  spec.batch_size = 4;
  spec.optimizer = Optimizer::kAdam;
  spec.tables = {{.rows = 1000, .cols = 16, .kernel = ComputeKernel::kFusedUvm}};
  constexpr std::int64_t kRowsBytes = std::int64_t{3} * 1000 * 16 * 4;  // weights, two moments
  const std::int64_t free_bytes = device->gpu()->AvailableBytes();
  const std::int64_t pinned_bytes = fake_gpu::PinnedBytes();
  const Status refused = device->CreateEmbeddingOp(spec).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(refused), ::testing::ContainsRegex("in host memory.*KiB cannot be pinned"));
  EXPECT_EQ(device->gpu()->AvailableBytes(), free_bytes);
  EXPECT_EQ(fake_gpu::PinnedBytes(), pinned_bytes);
  EXPECT_TRUE(device->Health().ok()) << device->Health();

  // The largest so far is kept.
  for (const auto& [rows, kept_bytes] : {std::pair(1000, kRowsBytes),
                                         {600, kRowsBytes},
                                         {2000, 2 * kRowsBytes},
                                         {10, 2 * kRowsBytes}}) {
    spec.tables[0].rows = rows;
    EXPECT_TRUE(device->CreateEmbeddingOp(spec).ok());
    EXPECT_EQ(device->gpu()->AvailableBytes(), free_bytes);
    EXPECT_EQ(fake_gpu::PinnedBytes(), pinned_bytes + kept_bytes);
  }
  device.reset();
  EXPECT_EQ(fake_gpu::PinnedBytes(), 0);
}

TEST(HostMemoryTest, MoreThanTheHostHasIsNotAskedFor) {
  auto device = CudaDevice::Create(0, std::make_shared<NoCollectives>()).value();
  EmbeddingOpSpec spec;
  spec.batch_size = 4;
  spec.tables = {{.rows = std::int64_t{1} << 45, .cols = 16, .kernel = ComputeKernel::kFusedUvm}};
  const Status refused = device->CreateEmbeddingOp(spec).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(refused), ::testing::HasSubstr("in host memory: 2.00 PiB do not fit"));
}

}  // namespace
}  // namespace neuroshard
