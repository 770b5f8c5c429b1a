#include "kernels/cpu/cpu_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/bytes.h"
#include "kernels/api/testing/op_contents.h"
#include "kernels/tcp/tcp_backend.h"

namespace neuroshard {
namespace {

using ::testing::Contains;
using ::testing::Key;

std::unique_ptr<CpuDevice> Device(std::int64_t memory_bytes = 64 * kMiB) {
  return CpuDevice::Create(memory_bytes, std::make_shared<TcpBackend>(CollectiveOptions{})).value();
}

EmbeddingOpSpec Spec(std::int64_t rows) {
  EmbeddingOpSpec spec;
  spec.batch_size = 4;
  spec.tables = {{rows, 16, PoolingMode::kSum}};
  return spec;
}

TEST(CpuDeviceTest, SaysWhatItIs) {
  const auto device = Device();
  const DeviceProperties& properties = device->properties();
  EXPECT_FALSE(properties.name.empty());
  EXPECT_EQ(properties.backend, "neuroshard-cpu");
  EXPECT_EQ(properties.collective_backend, "neuroshard-tcp");
  EXPECT_EQ(properties.memory_bytes, 64 * kMiB);
  for (const char* detail : {"instruction_set", "highway", "tcp_bind", "threads"}) {
    EXPECT_THAT(properties.details, Contains(Key(detail)));
  }
}

TEST(CpuDeviceTest, NoOrNegativeMemoryIsInvalid) {
  const auto collectives = std::make_shared<TcpBackend>(CollectiveOptions{});
  for (const std::int64_t bytes : {0, -1}) {
    EXPECT_EQ(CpuDevice::Create(bytes, collectives).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(CpuDeviceTest, OneOpAtATime) {
  const auto device = Device();
  auto op = device->CreateEmbeddingOp(Spec(100));
  ASSERT_TRUE(op.ok()) << op.status();
  EXPECT_EQ(device->CreateEmbeddingOp(Spec(100)).status().code(),
            absl::StatusCode::kFailedPrecondition);
  op->reset();
  EXPECT_TRUE(device->CreateEmbeddingOp(Spec(100)).ok());
}

TEST(CpuDeviceTest, StaysUsableAfterOutOfMemory) {
  const auto device = Device();
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(device->CreateEmbeddingOp(Spec(2'000'000)).status().code(),
              absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(device->CreateEmbeddingOp(Spec(500'000)).ok());
  }
}

TEST(CpuDeviceTest, OpOutlivesItsDevice) {
  auto device = Device();
  auto op = device->CreateEmbeddingOp(Spec(100)).value();
  device.reset();
  EXPECT_EQ(testing::ContentsOf(*op)->Weights(0).size(), 1600U);
}

TEST(CpuDeviceTest, TimesTheWorkItRuns) {
  const auto device = Device();
  bool ran = false;
  EXPECT_GE(device->TimeMs([&] { ran = true; }), 0);
  EXPECT_TRUE(ran);
  EXPECT_GT(device->TimeMs([&] { device->FlushCache(); }), 0);
}

TEST(CpuDeviceTest, OpensCommunicators) {
  const auto device = Device();
  auto pending = device->OpenCommunicator({0, 1, std::chrono::seconds(5)});
  ASSERT_TRUE(pending.ok()) << pending.status();
  EXPECT_TRUE((*pending)->Connect({(*pending)->address()}).ok());
}

}  // namespace
}  // namespace neuroshard
