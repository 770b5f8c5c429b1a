#include "worker/device/device_inventory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/fake_device_backend.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::FakeDeviceBackend;
using ::neuroshard::testing::FakeDeviceLog;
using ::neuroshard::testing::FakeDeviceScript;
using ::neuroshard::testing::IsOk;
using ::neuroshard::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class DeviceInventoryTest : public ::testing::Test {
 protected:
  std::vector<DeviceSpec> Specs(int count) {
    std::vector<DeviceSpec> specs(count);
    for (DeviceSpec& spec : specs) {
      spec.create = [this]() -> StatusOr<std::unique_ptr<DeviceBackend>> {
        return std::make_unique<FakeDeviceBackend>(script_, log_);
      };
    }
    return specs;
  }

  FakeDeviceScript script_;
  FakeDeviceLog log_;
};

TEST_F(DeviceInventoryTest, SecondJobIsRefusedNamingDeviceAndHolder) {
  NS_ASSERT_OK_AND_ASSIGN(auto inventory, DeviceInventory::Create(Specs(2)));
  NS_ASSERT_OK_AND_ASSIGN(DeviceLease lease, inventory->Lease(1, "sweep 'a'"));
  EXPECT_THAT(inventory->Lease(1, "sweep 'b'"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("device 1"), HasSubstr("sweep 'a'"))));
  EXPECT_THAT(inventory->Lease(0, "sweep 'b'"), IsOk());
  EXPECT_EQ(inventory->Describe()[1].running_job, "sweep 'a'");
}

TEST_F(DeviceInventoryTest, AFailedDeviceIsReportedAndNotLeasedAgain) {
  NS_ASSERT_OK_AND_ASSIGN(auto inventory, DeviceInventory::Create(Specs(2)));
  std::vector<std::string> failures;
  inventory->SetFailureObserver([&failures](int device, const Status& error) {
    failures.push_back(std::to_string(device) + " " + Message(error));
  });
  {
    NS_ASSERT_OK_AND_ASSIGN(DeviceLease lease, inventory->Lease(1, "sweep"));
    script_.health = Internal("an illegal address");
  }
  EXPECT_THAT(failures, ElementsAre("1 an illegal address"));
  EXPECT_THAT(inventory->Lease(1, "sweep"),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("an illegal address")));
}

TEST_F(DeviceInventoryTest, DeviceIsFreeAgainWhenTheLeaseGoes) {
  std::vector<std::pair<int, bool>> changes;
  NS_ASSERT_OK_AND_ASSIGN(auto inventory,
                          DeviceInventory::Create(Specs(1), [&changes](int device, bool busy) {
                            changes.emplace_back(device, busy);
                          }));
  {
    NS_ASSERT_OK_AND_ASSIGN(DeviceLease lease, inventory->Lease(0, "first"));
    DeviceLease moved = std::move(lease);
    EXPECT_EQ(moved.device(), 0);
    EXPECT_EQ(inventory->Describe()[0].running_job, "first") << "moving must not release";
  }
  EXPECT_EQ(inventory->Describe()[0].running_job, "");
  EXPECT_THAT(inventory->Lease(0, "second"), IsOk());
  EXPECT_THAT(changes, ElementsAre(Pair(0, false), Pair(0, true), Pair(0, false), Pair(0, true),
                                   Pair(0, false)));
}

TEST_F(DeviceInventoryTest, WorkRunsOnTheThreadThatMadeTheBackend) {
  std::thread::id maker;
  std::vector<DeviceSpec> specs = Specs(1);
  specs[0].create = [&]() -> StatusOr<std::unique_ptr<DeviceBackend>> {
    maker = std::this_thread::get_id();
    return std::make_unique<FakeDeviceBackend>(script_, log_);
  };
  NS_ASSERT_OK_AND_ASSIGN(auto inventory, DeviceInventory::Create(std::move(specs)));
  NS_ASSERT_OK_AND_ASSIGN(DeviceLease lease, inventory->Lease(0, "job"));
  const auto runner = lease
                          .Run([](DeviceBackend& backend) {
                            backend.FlushCache();
                            return std::this_thread::get_id();
                          })
                          .get();
  EXPECT_EQ(runner, maker);
  EXPECT_EQ(log_.Count("flush"), 1U);
}

TEST_F(DeviceInventoryTest, SaysWhichDeviceCannotBeMade) {
  std::vector<DeviceSpec> specs = Specs(2);
  specs[1].create = []() -> StatusOr<std::unique_ptr<DeviceBackend>> {
    return FailedPrecondition("no such hardware");
  };
  EXPECT_THAT(DeviceInventory::Create(std::move(specs)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("device 1"), HasSubstr("no such hardware"))));
  EXPECT_THAT(DeviceInventory::Create({}), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(DeviceInventoryTest, UnknownDeviceIsNotFound) {
  NS_ASSERT_OK_AND_ASSIGN(auto inventory, DeviceInventory::Create(Specs(1)));
  EXPECT_THAT(inventory->Lease(1, "x"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("has 1")));
  EXPECT_THAT(inventory->Lease(-1, "x"), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace neuroshard
