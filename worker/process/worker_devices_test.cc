#include "worker/process/worker_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_device_session.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

using Opened = std::vector<StatusOr<std::unique_ptr<DeviceSession>>>;

class KeepUsableTest : public ::testing::Test {
 protected:
  Opened OneBadOfThree() {
    Opened opened;
    opened.emplace_back(std::make_unique<testing::FakeDeviceSession>(script_));
    opened.emplace_back(Unavailable("no kernel image"));
    opened.emplace_back(std::make_unique<testing::FakeDeviceSession>(script_));
    return opened;
  }

  testing::FakeSessionScript script_;
};

TEST_F(KeepUsableTest, ABadGpuIsLeftOutWithItsReason) {
  NS_ASSERT_OK_AND_ASSIGN(const StartedDevices started, KeepUsable(OneBadOfThree(), true));
  EXPECT_EQ(started.devices.size(), 2U);
  EXPECT_THAT(started.left_out,
              ElementsAre(AllOf(HasSubstr("device 1"), HasSubstr("no kernel image"))));
}

TEST_F(KeepUsableTest, DevicesOfTheCpuComeTogether) {
  EXPECT_THAT(KeepUsable(OneBadOfThree(), false),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("device 1")));
}

TEST_F(KeepUsableTest, WithoutAnyUsableTheFirstReasonIsTheAnswer) {
  Opened opened;
  opened.emplace_back(Unavailable("first"));
  opened.emplace_back(Unavailable("second"));
  EXPECT_THAT(KeepUsable(std::move(opened), true),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("device 0: first")));
}

}  // namespace
}  // namespace neuroshard
