#include "worker/device/local_device_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/fake_device_backend.h"
#include "tests/support/faulty_fields.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::FakeDeviceBackend;
using ::neuroshard::testing::FakeDeviceLog;
using ::neuroshard::testing::FakeDeviceScript;
using ::neuroshard::testing::IsOk;
using ::neuroshard::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LocalDeviceSessionTest : public ::testing::Test {
 protected:
  void Open() {
    auto opened =
        LocalDeviceSession::Open({.create = [this]() -> StatusOr<std::unique_ptr<DeviceBackend>> {
                                    maker_ = std::this_thread::get_id();
                                    return std::make_unique<FakeDeviceBackend>(script_, log_);
                                  },
                                  .core = std::nullopt},
                                 stamp_, time_);
    ASSERT_THAT(opened, IsOk());
    session_ = *std::move(opened);
  }
  void OpenAndConnect() {
    Open();
    EXPECT_EQ(session_->OpenRank({.rank = 1, .world_size = 2}).value(), "rank 1");
    ASSERT_THAT(session_->ConnectRank({{1, "rank 1"}, {0, "rank 0"}}), IsOk());
  }
  StatusOr<CommMeasurement> Measure() { return session_->MeasureComm(Sample(), {}, never_); }
  static CommSample Sample() {
    CommSample sample;
    sample.sample_id = "c";
    sample.dim_sums = {4, 4};
    sample.batch_size = 2;
    return sample;
  }

  FakeDeviceScript script_;
  FakeDeviceLog log_;
  const SteadyTimekeeper time_{};
  const RecordStamp stamp_{MeasurementEnvironment{}, [] { return std::int64_t{0}; }};
  const NeverStop never_{};
  std::thread::id maker_;
  std::unique_ptr<LocalDeviceSession> session_;
};

TEST_F(LocalDeviceSessionTest, WorkRunsOnTheThreadThatMadeTheBackend) {
  Open();
  std::thread::id runner;
  script_.on_time = [&runner] { runner = std::this_thread::get_id(); };
  ComputeSample sample;
  sample.sample_id = "a";
  sample.batch_size = 4;
  sample.shards = {{.table = "t", .rows = 10, .cols = 4}};
  sample.shards[0].reuse_histogram[0] = 1;
  NS_ASSERT_OK_AND_ASSIGN(const ComputeMeasurement record,
                          session_->MeasureCompute(sample, {}, never_));
  EXPECT_EQ(record.sample_id, "a");
  EXPECT_EQ(runner, maker_);
  EXPECT_NE(runner, std::this_thread::get_id());
}

TEST_F(LocalDeviceSessionTest, SaysWhyADeviceCannotBeMade) {
  const DeviceSpec spec{.create = []() -> StatusOr<std::unique_ptr<DeviceBackend>> {
                          return FailedPrecondition("no such hardware");
                        },
                        .core = std::nullopt};
  EXPECT_THAT(LocalDeviceSession::Open(spec, stamp_, time_),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no such hardware")));
}

TEST_F(LocalDeviceSessionTest, AFailedBackendIsNotUsedAgain) {
  Open();
  EXPECT_THAT(session_->Prepare(), IsOk());
  script_.health = Internal("an illegal address");
  EXPECT_THAT(session_->Prepare(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("an illegal address")));
}

TEST_F(LocalDeviceSessionTest, ARankMeasuresUntilItIsClosed) {
  OpenAndConnect();
  EXPECT_EQ(Measure().value().rank, 1);
  EXPECT_EQ(log_.Count("disconnect"), 0U);
  session_->CloseRank();
  session_->CloseRank();
  EXPECT_EQ(log_.Count("disconnect"), 1U);
  EXPECT_THAT(Measure(), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(session_->OpenRank({.rank = 0, .world_size = 1}), IsOk());
}

TEST_F(LocalDeviceSessionTest, WrongAddressesAreNamedAndLeaveTheRankAsItWas) {
  Open();
  ASSERT_THAT(session_->OpenRank({.rank = 0, .world_size = 2}), IsOk());
  EXPECT_THAT(FaultyFields(session_->ConnectRank({{0, "rank 0"}, {1, "metadata service"}})),
              ElementsAre("addresses[1].address"));
  EXPECT_THAT(session_->ConnectRank({{0, "rank 0"}, {1, "rank 1"}}), IsOk());
}

TEST_F(LocalDeviceSessionTest, ABrokenRankIsDisconnectedAtOnce) {
  OpenAndConnect();
  script_.all_to_all = absl::AbortedError("peer 0 is gone");
  EXPECT_THAT(Measure(), StatusIs(absl::StatusCode::kAborted, HasSubstr("peer 0")));
  EXPECT_EQ(log_.Count("disconnect"), 1U);
  EXPECT_THAT(Measure(), StatusIs(absl::StatusCode::kAborted, HasSubstr("earlier failure")));
}

TEST_F(LocalDeviceSessionTest, AFailedConnectionIsAbortedWhateverItsReason) {
  Open();
  script_.connect = Unavailable("timed out");
  ASSERT_THAT(session_->OpenRank({.rank = 0, .world_size = 1}), IsOk());
  EXPECT_THAT(session_->ConnectRank({{0, "rank 0"}}), StatusIs(absl::StatusCode::kAborted));
}

TEST_F(LocalDeviceSessionTest, AnExceptionInAMeasurementIsAnError) {
  OpenAndConnect();
  script_.on_all_to_all = [] { throw std::runtime_error("oh"); };
  EXPECT_THAT(Measure(), StatusIs(absl::StatusCode::kInternal, HasSubstr("oh")));
}

TEST_F(LocalDeviceSessionTest, CutOffReachesTheRankFromAnyThread) {
  OpenAndConnect();
  script_.on_all_to_all = [this] {
    while (log_.Count("abort") == 0) std::this_thread::yield();
  };
  script_.all_to_all = absl::AbortedError("cut off");
  std::thread cutting([this] {
    while (log_.Count("abort") == 0) session_->CutOff();
  });
  EXPECT_THAT(Measure(), StatusIs(absl::StatusCode::kAborted));
  cutting.join();
}

}  // namespace
}  // namespace neuroshard
