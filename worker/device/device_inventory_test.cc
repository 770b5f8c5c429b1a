#include "worker/device/device_inventory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "tests/support/fake_device_session.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::FakeDeviceSession;
using ::neuroshard::testing::FakeSessionScript;
using ::neuroshard::testing::IsOk;
using ::neuroshard::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class DeviceInventoryTest : public ::testing::Test {
 protected:
  std::vector<std::unique_ptr<DeviceSession>> Sessions(int count) {
    std::vector<std::unique_ptr<DeviceSession>> sessions;
    for (int i = 0; i < count; ++i)
      sessions.push_back(std::make_unique<FakeDeviceSession>(script_));
    return sessions;
  }

  FakeSessionScript script_;
};

TEST_F(DeviceInventoryTest, SecondJobIsRefusedNamingDeviceAndHolder) {
  DeviceInventory inventory(Sessions(2));
  NS_ASSERT_OK_AND_ASSIGN(DeviceLease lease, inventory.Lease(1, "sweep 'a'"));
  EXPECT_THAT(inventory.Lease(1, "sweep 'b'"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("device 1"), HasSubstr("sweep 'a'"))));
  EXPECT_THAT(inventory.Lease(0, "sweep 'b'"), IsOk());
  EXPECT_EQ(inventory.Describe()[1].running_job, "sweep 'a'");
}

TEST_F(DeviceInventoryTest, ADeviceThatCannotBeUsedSaysWhyAndIsAskedAgain) {
  DeviceInventory inventory(Sessions(2));
  script_.prepare = Unavailable("an illegal address");
  EXPECT_THAT(inventory.Lease(1, "sweep"),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("device 1"), HasSubstr("an illegal address"))));
  EXPECT_EQ(inventory.Describe()[1].running_job, "");
  script_.prepare = absl::OkStatus();
  EXPECT_THAT(inventory.Lease(1, "sweep"), IsOk());
}

TEST_F(DeviceInventoryTest, DeviceIsFreeAgainWhenTheLeaseGoes) {
  std::vector<std::pair<int, bool>> changes;
  DeviceInventory inventory(
      Sessions(1), [&changes](int device, bool busy) { changes.emplace_back(device, busy); });
  {
    NS_ASSERT_OK_AND_ASSIGN(DeviceLease lease, inventory.Lease(0, "first"));
    DeviceLease moved = std::move(lease);
    EXPECT_EQ(moved.get_deleter().device, 0);
    EXPECT_EQ(inventory.Describe()[0].running_job, "first") << "moving must not release";
  }
  EXPECT_EQ(inventory.Describe()[0].running_job, "");
  EXPECT_THAT(inventory.Lease(0, "second"), IsOk());
  EXPECT_THAT(changes, ElementsAre(Pair(0, false), Pair(0, true), Pair(0, false), Pair(0, true),
                                   Pair(0, false)));
}

TEST_F(DeviceInventoryTest, UnknownDeviceIsNotFound) {
  DeviceInventory inventory(Sessions(1));
  EXPECT_THAT(inventory.Lease(1, "x"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("has 1")));
  EXPECT_THAT(inventory.Lease(-1, "x"), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace neuroshard
