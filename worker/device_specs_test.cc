#include "worker/device_specs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::StatusIs;

TEST(DeviceSpecsTest, OneSpecACpuDevice) {
  WorkerOptions options;
  options.cpu.count = 3;
  NS_ASSERT_OK_AND_ASSIGN(const std::vector<DeviceSpec> specs, MakeDeviceSpecs(options));
  EXPECT_EQ(specs.size(), 3U);
}

TEST(DeviceSpecsTest, CudaSaysThatItIsNotBuiltIn) {
  WorkerOptions options;
  options.backend = WorkerBackend::kCuda;
  EXPECT_THAT(MakeDeviceSpecs(options),
              StatusIs(absl::StatusCode::kFailedPrecondition, ::testing::HasSubstr("cuda")));
}

}  // namespace
}  // namespace neuroshard
