#include "worker/device/comm_group_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "tests/support/fake_clock.h"
#include "tests/support/fake_device_backend.h"
#include "tests/support/faulty_fields.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::FakeClock;
using ::neuroshard::testing::FakeDeviceBackend;
using ::neuroshard::testing::FakeDeviceLog;
using ::neuroshard::testing::FakeDeviceScript;
using ::neuroshard::testing::IsOk;
using ::neuroshard::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CommGroupRegistryTest : public ::testing::Test {
 protected:
  CommGroupRegistryTest() {
    std::vector<DeviceSpec> specs(2);
    for (DeviceSpec& spec : specs) {
      spec.create = [this]() -> StatusOr<std::unique_ptr<DeviceBackend>> {
        return std::make_unique<FakeDeviceBackend>(script_, log_);
      };
    }
    inventory_ = *DeviceInventory::Create(std::move(specs));
    registry_ = std::make_unique<CommGroupRegistry>(*inventory_, clock_,
                                                    [this](int open) { open_groups_ = open; });
  }

  static CommGroupSpec Spec() {
    return {.group_id = "g",
            .world_size = 2,
            .local_ranks = {{.rank = 0, .device = 0}, {.rank = 1, .device = 1}}};
  }
  // What the caller keeps of an opened group.
  std::vector<RankAddress> Open() {
    const auto group = registry_->Open(Spec());
    EXPECT_THAT(group, IsOk());
    if (!group.ok()) return {};
    key_ = {.group_id = "g", .token = (*group)->token()};
    return (*group)->addresses();
  }
  void OpenAndConnect() {
    const std::vector<RankAddress> addresses = Open();
    ASSERT_THAT(registry_->Connect(key_, addresses, never_), IsOk());
  }
  static Status DoNothing(int, DeviceBackend&, Communicator&, const StopSignal&) {
    return absl::OkStatus();
  }
  // A call whose peers stall: it ends when it is cut off, and not before.
  std::future<Status> RunUntilCutOff(const StopSignal& stop) {
    std::promise<void> started;
    std::future<Status> call = std::async(std::launch::async, [&] {
      return registry_->Run(
          key_,
          [&](int i, DeviceBackend&, Communicator&, const StopSignal&) -> Status {
            if (i == 0) started.set_value();
            while (log_.Count("abort") == 0) std::this_thread::yield();
            return absl::AbortedError("cut off");
          },
          stop);
    });
    started.get_future().wait();
    return call;
  }
  void ExpectDevicesFree() {
    for (const DeviceDescription& device : inventory_->Describe()) {
      EXPECT_EQ(device.running_job, "");
    }
  }

  FakeDeviceScript script_;
  FakeDeviceLog log_;
  FakeClock clock_;
  const NeverStop never_;
  CommGroupKey key_{.group_id = "g", .token = ""};
  int open_groups_ = 0;
  std::unique_ptr<DeviceInventory> inventory_;
  std::unique_ptr<CommGroupRegistry> registry_;
};

TEST_F(CommGroupRegistryTest, RunsWorkOnEveryLocalRank) {
  const std::vector<RankAddress> addresses = Open();
  EXPECT_THAT(addresses, ElementsAre(RankAddress{.rank = 0, .address = "rank 0"},
                                     RankAddress{.rank = 1, .address = "rank 1"}));
  EXPECT_EQ(open_groups_, 1);
  EXPECT_THAT(inventory_->Lease(0, "other"), StatusIs(absl::StatusCode::kResourceExhausted,
                                                      HasSubstr("a comm group (rank 0 of 2)")));
  ASSERT_THAT(registry_->Connect(key_, addresses, never_), IsOk());

  std::vector<int> ranks(2, -1);
  ASSERT_THAT(registry_->Run(
                  key_,
                  [&ranks](int i, DeviceBackend&, Communicator& comm, const StopSignal&) -> Status {
                    ranks[i] = comm.rank();
                    return absl::OkStatus();
                  },
                  never_),
              IsOk());
  EXPECT_THAT(ranks, ElementsAre(0, 1));

  EXPECT_THAT(registry_->Close(key_), IsOk());
  EXPECT_THAT(registry_->Close(key_), IsOk());
  ExpectDevicesFree();
  EXPECT_EQ(open_groups_, 0);
  EXPECT_EQ(log_.Count("disconnect"), 2U);
}

TEST_F(CommGroupRegistryTest, ListsEveryFaultOfASpec) {
  CommGroupSpec spec = Spec();
  spec.group_id = "";
  spec.local_ranks = {{.rank = 0, .device = 0}, {.rank = 0, .device = 7}, {.rank = 2, .device = 0}};
  spec.timeout = std::chrono::milliseconds(99);
  const Status status = registry_->Open(spec).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument));
  const std::vector<std::string> fields = FaultyFields(status);
  EXPECT_THAT(fields, ElementsAre("group_id", "local_ranks[1].rank", "local_ranks[1].device",
                                  "local_ranks[2].rank", "local_ranks[2].device", "timeout_ms"));
  ExpectDevicesFree();
}

TEST_F(CommGroupRegistryTest, ConnectWantsOneAddressOfEveryRank) {
  const std::vector<RankAddress> addresses = Open();
  auto bad = addresses;
  bad[1].rank = 0;
  EXPECT_THAT(registry_->Connect(key_, bad, never_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("none of rank 1")));
  EXPECT_THAT(registry_->Connect(key_, addresses, never_), IsOk())
      << "a bad request must not cost the group";
  EXPECT_THAT(registry_->Connect(key_, addresses, never_),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("connected already")));
}

TEST_F(CommGroupRegistryTest, UnknownAndUnconnectedGroups) {
  EXPECT_THAT(registry_->Run(key_, DoNothing, never_), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(registry_->Connect(key_, {}, never_), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(registry_->Close(key_), IsOk());
  Open();
  EXPECT_THAT(registry_->Run(key_, DoNothing, never_),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(registry_->Open(Spec()), StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(CommGroupRegistryTest, OnlyWhoHasTheTokenUsesOrClosesAGroup) {
  const std::vector<RankAddress> addresses = Open();
  for (const std::string& token : {std::string(), std::string(32, '0'), key_.token + "0"}) {
    const CommGroupKey foreign{.group_id = "g", .token = token};
    for (const Status& status : {registry_->Connect(foreign, addresses, never_),
                                 registry_->Run(foreign, DoNothing, never_),
                                 registry_->Spec(foreign).status(), registry_->Close(foreign)}) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("token")));
    }
  }
  EXPECT_THAT(registry_->Connect(key_, addresses, never_), IsOk()) << "nothing happened to it";
  EXPECT_THAT(registry_->Close(key_), IsOk());
  const std::string old = key_.token;
  Open();
  EXPECT_NE(key_.token, old) << "the next group has a token of its own";
}

TEST_F(CommGroupRegistryTest, BusyDeviceRefusesTheWholeGroup) {
  NS_ASSERT_OK_AND_ASSIGN(DeviceLease lease, inventory_->Lease(1, "a sweep"));
  EXPECT_THAT(registry_->Open(Spec()),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("a sweep")));
  EXPECT_EQ(inventory_->Describe()[0].running_job, "") << "the first rank's lease must be returned";
}

TEST_F(CommGroupRegistryTest, FailureAbortsTheGroupAndFreesTheDevices) {
  OpenAndConnect();
  EXPECT_THAT(registry_->Run(
                  key_,
                  [](int i, DeviceBackend&, Communicator&, const StopSignal&) -> Status {
                    return i == 0 ? absl::OkStatus() : Status(absl::AbortedError("peer 7 is gone"));
                  },
                  never_),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("peer 7")));
  ExpectDevicesFree();
  EXPECT_THAT(registry_->Run(key_, DoNothing, never_), StatusIs(absl::StatusCode::kNotFound));
  OpenAndConnect();
}

TEST_F(CommGroupRegistryTest, FailedConnectAbortsTheGroup) {
  script_.connect = absl::AbortedError("timed out");
  const std::vector<RankAddress> addresses = Open();
  EXPECT_THAT(registry_->Connect(key_, addresses, never_), StatusIs(absl::StatusCode::kAborted));
  ExpectDevicesFree();
}

TEST_F(CommGroupRegistryTest, AgreedErrorsLeaveTheGroupUsable) {
  OpenAndConnect();
  EXPECT_THAT(registry_->Run(
                  key_,
                  [](int, DeviceBackend&, Communicator&, const StopSignal&) {
                    return absl::CancelledError("stop");
                  },
                  never_),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(registry_->Run(key_, DoNothing, never_), IsOk());
}

TEST_F(CommGroupRegistryTest, IdleGroupsClose) {
  OpenAndConnect();
  clock_.Advance(std::chrono::milliseconds(40000));
  EXPECT_THAT(registry_->Run(key_, DoNothing, never_), IsOk());
  clock_.Advance(std::chrono::milliseconds(59999));
  EXPECT_EQ(registry_->CloseIdle(), 0);
  clock_.Advance(std::chrono::milliseconds(2));
  EXPECT_EQ(registry_->CloseIdle(), 1);
  ExpectDevicesFree();
  EXPECT_THAT(registry_->Run(key_, DoNothing, never_), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(CommGroupRegistryTest, CloseStopsARunningCallAndABusyGroupIsNotIdle) {
  OpenAndConnect();
  std::promise<void> started;
  std::future<Status> call = std::async(std::launch::async, [&] {
    return registry_->Run(
        key_,
        [&started](int i, DeviceBackend&, Communicator&, const StopSignal& closing) -> Status {
          if (i == 0) started.set_value();
          while (!closing.ShouldStop()) std::this_thread::yield();
          return absl::CancelledError("the group is being closed");
        },
        never_);
  });
  started.get_future().wait();
  clock_.Advance(std::chrono::hours(1));
  EXPECT_EQ(registry_->CloseIdle(), 0);
  EXPECT_THAT(registry_->Run(key_, DoNothing, never_),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("busy")));
  EXPECT_THAT(registry_->Close(key_), IsOk());
  EXPECT_THAT(call.get(), StatusIs(absl::StatusCode::kCancelled));
  ExpectDevicesFree();
}

TEST_F(CommGroupRegistryTest, AStoppedCallThatDoesNotEndIsCutOff) {
  OpenAndConnect();
  ManualStop stop;
  std::future<Status> call = RunUntilCutOff(stop);
  const auto cut_off_after = [this](std::chrono::milliseconds time) {
    clock_.Advance(time);
    registry_->CutOffOverdueCalls();
    return log_.Count("abort") > 0;
  };
  EXPECT_FALSE(cut_off_after(std::chrono::hours(1))) << "nobody wanted it to stop";
  stop.Stop();
  EXPECT_FALSE(cut_off_after(std::chrono::milliseconds(0)));
  EXPECT_FALSE(cut_off_after(kStopGrace));
  EXPECT_TRUE(cut_off_after(std::chrono::milliseconds(1)));
  EXPECT_THAT(call.get(), StatusIs(absl::StatusCode::kAborted));
  ExpectDevicesFree();
}

TEST_F(CommGroupRegistryTest, CloseCutsOffACallThatDoesNotStop) {
  OpenAndConnect();
  std::future<Status> call = RunUntilCutOff(never_);
  EXPECT_THAT(registry_->Close(key_), IsOk());
  EXPECT_THAT(call.get(), StatusIs(absl::StatusCode::kAborted));
  ExpectDevicesFree();
}

TEST_F(CommGroupRegistryTest, ReaperClosesIdleGroups) {
  OpenAndConnect();
  clock_.Advance(std::chrono::hours(1));
  CommGroupReaper reaper(*registry_, std::chrono::milliseconds(1));
  while (registry_->Spec(key_).ok()) std::this_thread::yield();
}

}  // namespace
}  // namespace neuroshard
