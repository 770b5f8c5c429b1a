#include "worker/options/device_specs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::StatusIs;

TEST(DeviceSpecsTest, OneSpecACpuDevice) {
  WorkerOptions options;
  options.backend = WorkerBackend::kCpu;
  options.cpu.count = 3;
  NS_ASSERT_OK_AND_ASSIGN(const ChosenDevices chosen, ChooseDevices(options));
  EXPECT_EQ(chosen.specs.size(), 3U);
  EXPECT_EQ(chosen.why_not_cuda, "");
}

// On hosts with GPUs the same binary finds them; the tests of kernels/cuda are about what they do.
TEST(DeviceSpecsTest, AutoIsCudaWhereItCanBeUsedAndElseTheCpu) {
  WorkerOptions options;
  options.cpu.count = 3;
  options.backend = WorkerBackend::kCuda;
  const auto cuda = ChooseDevices(options);
  options.backend = WorkerBackend::kAuto;
  NS_ASSERT_OK_AND_ASSIGN(const ChosenDevices chosen, ChooseDevices(options));
  EXPECT_EQ(chosen.specs.size(), cuda.ok() ? cuda->specs.size() : 3U);
  EXPECT_EQ(chosen.why_not_cuda, cuda.ok() ? "" : Message(cuda.status()));
  if (!cuda.ok()) {
    EXPECT_THAT(chosen.why_not_cuda, ::testing::ContainsRegex("cuda|CUDA|NCCL"));
  }
}

}  // namespace
}  // namespace neuroshard
