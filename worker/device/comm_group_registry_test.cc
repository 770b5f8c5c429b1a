#include "worker/device/comm_group_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <thread>

#include "common/base/periodic_thread.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_device_session.h"
#include "tests/support/faulty_fields.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::FakeClock;
using ::neuroshard::testing::FakeDeviceSession;
using ::neuroshard::testing::FakeSessionScript;
using ::neuroshard::testing::IsOk;
using ::neuroshard::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CommGroupRegistryTest : public ::testing::Test {
 protected:
  static CommGroupSpec Spec() {
    return {.group_id = "g",
            .world_size = 2,
            .local_ranks = {{.rank = 0, .device = 0}, {.rank = 1, .device = 1}}};
  }
  // What the caller keeps of an opened group.
  std::vector<RankAddress> Open() {
    const auto group = registry_.Open(Spec());
    EXPECT_THAT(group, IsOk());
    if (!group.ok()) return {};
    key_ = {.group_id = "g", .token = (*group)->token()};
    return (*group)->addresses();
  }
  void OpenAndConnect() {
    const std::vector<RankAddress> addresses = Open();
    ASSERT_THAT(registry_.Connect(key_, addresses, never_), IsOk());
  }
  Status Measure() { return Measure(key_, never_); }
  Status Measure(const CommGroupKey& key, const StopSignal& stop) {
    return registry_.Measure(key, {}, {}, stop).status();
  }
  // A call in progress, which does `on_rank_0` on rank 0.
  std::future<Status> Begin(const StopSignal& stop,
                            const std::function<Status(const StopSignal&)>& on_rank_0) {
    auto started = std::make_shared<std::promise<void>>();
    script_.measure = [started, on_rank_0](int rank, const StopSignal& rank_stop) -> Status {
      if (rank != 0) return absl::OkStatus();
      started->set_value();
      return on_rank_0(rank_stop);
    };
    std::future<Status> call =
        std::async(std::launch::async, [this, &stop] { return Measure(key_, stop); });
    started->get_future().wait();
    return call;
  }
  // Its peers stall: it ends when it is cut off, and not before.
  std::future<Status> BeginUntilCutOff(const StopSignal& stop) {
    return Begin(stop, [this](const StopSignal&) -> Status {
      while (script_.cut_off == 0) std::this_thread::yield();
      return absl::AbortedError("cut off");
    });
  }
  void ExpectDevicesFree() {
    for (const DeviceDescription& device : inventory_.Describe()) {
      EXPECT_EQ(device.running_job, "");
    }
  }

  static std::vector<std::unique_ptr<DeviceSession>> Sessions(FakeSessionScript& script) {
    std::vector<std::unique_ptr<DeviceSession>> sessions;
    for (int i = 0; i < 2; ++i) sessions.push_back(std::make_unique<FakeDeviceSession>(script));
    return sessions;
  }

  FakeSessionScript script_;
  FakeClock clock_;
  const NeverStop never_{};
  CommGroupKey key_{.group_id = "g", .token = ""};
  int open_groups_ = 0;
  DeviceInventory inventory_{Sessions(script_)};
  CommGroupRegistry registry_{inventory_, clock_, [this](int open) { open_groups_ = open; }};
};

TEST_F(CommGroupRegistryTest, MeasuresOnEveryLocalRank) {
  const std::vector<RankAddress> addresses = Open();
  EXPECT_THAT(addresses, ElementsAre(RankAddress{.rank = 0, .address = "rank 0"},
                                     RankAddress{.rank = 1, .address = "rank 1"}));
  EXPECT_EQ(open_groups_, 1);
  EXPECT_THAT(inventory_.Lease(0, "other"), StatusIs(absl::StatusCode::kResourceExhausted,
                                                     HasSubstr("a comm group (rank 0 of 2)")));
  ASSERT_THAT(registry_.Connect(key_, addresses, never_), IsOk());

  NS_ASSERT_OK_AND_ASSIGN(const auto records, registry_.Measure(key_, {}, {}, never_));
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].rank, 0);
  EXPECT_EQ(records[1].rank, 1);

  EXPECT_THAT(registry_.Close(key_), IsOk());
  EXPECT_THAT(registry_.Close(key_), IsOk());
  ExpectDevicesFree();
  EXPECT_EQ(open_groups_, 0);
  EXPECT_EQ(script_.closed, 2);
}

TEST_F(CommGroupRegistryTest, ListsEveryFaultOfASpec) {
  CommGroupSpec spec = Spec();
  spec.group_id = "";
  spec.local_ranks = {{.rank = 0, .device = 0}, {.rank = 0, .device = 7}, {.rank = 2, .device = 0}};
  spec.timeout = std::chrono::milliseconds(99);
  const Status status = registry_.Open(spec).status();
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
  EXPECT_THAT(registry_.Connect(key_, bad, never_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("none of rank 1")));
  bad = {addresses[1], {.rank = 0, .address = "metadata service"}};
  EXPECT_THAT(FaultyFields(registry_.Connect(key_, bad, never_)),
              ElementsAre("addresses[1].address"));
  EXPECT_THAT(registry_.Connect(key_, addresses, never_), IsOk())
      << "a bad request must not cost the group";
  EXPECT_THAT(registry_.Connect(key_, addresses, never_),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("connected already")));
}

TEST_F(CommGroupRegistryTest, UnknownAndUnconnectedGroups) {
  EXPECT_THAT(Measure(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(registry_.Connect(key_, {}, never_), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(registry_.Close(key_), IsOk());
  Open();
  EXPECT_THAT(Measure(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(registry_.Open(Spec()), StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(CommGroupRegistryTest, OnlyWhoHasTheTokenUsesOrClosesAGroup) {
  const std::vector<RankAddress> addresses = Open();
  for (const std::string& token : {std::string(), std::string(32, '0'), key_.token + "0"}) {
    const CommGroupKey foreign{.group_id = "g", .token = token};
    for (const Status& status :
         {registry_.Connect(foreign, addresses, never_), Measure(foreign, never_),
          registry_.Spec(foreign).status(), registry_.Close(foreign)}) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("token")));
    }
  }
  EXPECT_THAT(registry_.Connect(key_, addresses, never_), IsOk()) << "nothing happened to it";
  EXPECT_THAT(registry_.Close(key_), IsOk());
  const std::string old = key_.token;
  Open();
  EXPECT_NE(key_.token, old) << "the next group has a token of its own";
}

TEST_F(CommGroupRegistryTest, BusyDeviceRefusesTheWholeGroup) {
  NS_ASSERT_OK_AND_ASSIGN(DeviceLease lease, inventory_.Lease(1, "a sweep"));
  EXPECT_THAT(registry_.Open(Spec()),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("a sweep")));
  EXPECT_EQ(inventory_.Describe()[0].running_job, "") << "the first rank's lease must be returned";
}

TEST_F(CommGroupRegistryTest, FailureAbortsTheGroupAndFreesTheDevices) {
  OpenAndConnect();
  script_.measure = [](int rank, const StopSignal&) -> Status {
    return rank == 0 ? absl::OkStatus() : Status(absl::AbortedError("peer 7 is gone"));
  };
  EXPECT_THAT(Measure(), StatusIs(absl::StatusCode::kAborted, HasSubstr("peer 7")));
  ExpectDevicesFree();
  EXPECT_THAT(Measure(), StatusIs(absl::StatusCode::kNotFound));
  OpenAndConnect();
}

TEST_F(CommGroupRegistryTest, ARankThatFailsIsNamedAndEndsTheOthers) {
  OpenAndConnect();
  script_.measure = [this](int rank, const StopSignal&) -> Status {
    if (rank == 1) return absl::AbortedError("a launch failed");
    while (script_.cut_off == 0) std::this_thread::yield();
    return absl::AbortedError("cut off");
  };
  EXPECT_THAT(Measure(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("device 1: a launch failed")));
  // Also where another had refused before.
  OpenAndConnect();
  script_.measure = [](int rank, const StopSignal&) -> Status {
    return rank == 0 ? absl::InvalidArgumentError("sample: refused") : absl::AbortedError("gone");
  };
  EXPECT_THAT(Measure(), StatusIs(absl::StatusCode::kAborted, HasSubstr("device 1: gone")));
}

TEST_F(CommGroupRegistryTest, FailedConnectAbortsTheGroup) {
  script_.connect = absl::AbortedError("timed out");
  const std::vector<RankAddress> addresses = Open();
  EXPECT_THAT(registry_.Connect(key_, addresses, never_), StatusIs(absl::StatusCode::kAborted));
  ExpectDevicesFree();
}

TEST_F(CommGroupRegistryTest, AgreedErrorsLeaveTheGroupUsable) {
  OpenAndConnect();
  script_.measure = [](int, const StopSignal&) { return absl::CancelledError("stop"); };
  EXPECT_THAT(Measure(), StatusIs(absl::StatusCode::kCancelled));
  script_.measure = nullptr;
  EXPECT_THAT(Measure(), IsOk());
}

TEST_F(CommGroupRegistryTest, IdleGroupsClose) {
  OpenAndConnect();
  clock_.Advance(std::chrono::milliseconds(40000));
  EXPECT_THAT(Measure(), IsOk());
  clock_.Advance(std::chrono::milliseconds(59999));
  EXPECT_THAT(registry_.CloseIdle(), ::testing::IsEmpty());
  clock_.Advance(std::chrono::milliseconds(2));
  EXPECT_THAT(registry_.CloseIdle(), ::testing::ElementsAre("g"));
  ExpectDevicesFree();
  EXPECT_THAT(Measure(), StatusIs(absl::StatusCode::kNotFound));
}

// As when a call has found its group and CloseIdle comes before it begins.
TEST_F(CommGroupRegistryTest, NoCallBeginsOnAGroupThatEndedIdle) {
  const auto group = CommGroup::Open(Spec(), inventory_, clock_);
  ASSERT_THAT(group, IsOk());
  const auto connect = [&] { return (*group)->Connect((*group)->addresses(), never_); };
  clock_.Advance(std::chrono::milliseconds(60000));
  EXPECT_FALSE((*group)->EndIfIdle());
  EXPECT_THAT((*group)->Measure({}, {}, never_).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  clock_.Advance(std::chrono::milliseconds(60000));
  EXPECT_FALSE((*group)->EndIfIdle()) << "a call that is refused is a call";
  clock_.Advance(std::chrono::milliseconds(1));
  EXPECT_TRUE((*group)->EndIfIdle());
  EXPECT_THAT(connect(), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(CommGroupRegistryTest, CloseStopsARunningCallAndABusyGroupIsNotIdle) {
  OpenAndConnect();
  std::future<Status> call = Begin(never_, [](const StopSignal& stop) -> Status {
    while (!stop.ShouldStop()) std::this_thread::yield();
    return absl::CancelledError("the group is being closed");
  });
  clock_.Advance(std::chrono::hours(1));
  EXPECT_THAT(registry_.CloseIdle(), ::testing::IsEmpty());
  EXPECT_THAT(Measure(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("busy")));
  EXPECT_THAT(registry_.Close(key_), IsOk());
  EXPECT_THAT(call.get(), StatusIs(absl::StatusCode::kCancelled));
  ExpectDevicesFree();
}

TEST_F(CommGroupRegistryTest, AFailedCallAndItsClientCloseAGroupOnce) {
  for (int round = 1; round <= 100; ++round) {
    OpenAndConnect();
    std::future<Status> call = Begin(never_, [](const StopSignal& stop) -> Status {
      while (!stop.ShouldStop()) std::this_thread::yield();
      return absl::AbortedError("a peer is gone");
    });
    EXPECT_THAT(registry_.Close(key_), IsOk());
    EXPECT_THAT(call.get(), StatusIs(absl::StatusCode::kAborted));
    ASSERT_EQ(script_.closed, 2 * round);
  }
}

TEST_F(CommGroupRegistryTest, AStoppedCallThatDoesNotEndIsCutOff) {
  OpenAndConnect();
  ManualStop stop;
  std::future<Status> call = BeginUntilCutOff(stop);
  const auto cut_off_after = [this](std::chrono::milliseconds time) {
    clock_.Advance(time);
    registry_.CutOffOverdueCalls();
    return script_.cut_off > 0;
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
  std::future<Status> call = BeginUntilCutOff(never_);
  EXPECT_THAT(registry_.Close(key_), IsOk());
  EXPECT_THAT(call.get(), StatusIs(absl::StatusCode::kAborted));
  ExpectDevicesFree();
}

TEST_F(CommGroupRegistryTest, ReaperClosesIdleGroups) {
  OpenAndConnect();
  clock_.Advance(std::chrono::hours(1));
  const PeriodicThread reaper(std::chrono::milliseconds(1), [this] { registry_.CloseIdle(); });
  while (registry_.Spec(key_).ok()) std::this_thread::yield();
}

}  // namespace
}  // namespace neuroshard
