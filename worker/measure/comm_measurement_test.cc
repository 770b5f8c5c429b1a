#include "worker/measure/comm_measurement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/support/fake_clock.h"
#include "tests/support/fake_device_backend.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::FakeClock;
using ::neuroshard::testing::FakeCommunicator;
using ::neuroshard::testing::FakeDeviceLog;
using ::neuroshard::testing::FakeDeviceScript;
using ::neuroshard::testing::StatusIs;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Waiting takes exactly as long as asked, on a clock that nothing else moves.
class FakeTimekeeper final : public Timekeeper {
 public:
  TimePoint Now() const override { return clock_.Now(); }
  void WaitUntil(TimePoint target, const StopSignal&) const override {
    waited_ms_ += MillisecondsBetween(Now(), target);
    clock_.Advance(target - Now());
  }
  void Advance(std::chrono::nanoseconds by) const { clock_.Advance(by); }
  double waited_ms() const { return waited_ms_; }

 private:
  mutable FakeClock clock_;
  mutable double waited_ms_ = 0;
};

class CommMeasurementTest : public ::testing::Test {
 protected:
  CommMeasurementTest() {
    script_.on_all_to_all = [this] { time_.Advance(std::chrono::milliseconds(7)); };
  }
  static CommSample Sample() {
    return {.sample_id = "c-1",
            .dim_sums = {8, 4},
            .start_offsets_ms = {},
            .batch_size = 4,
            .element_bytes = 4};
  }
  StatusOr<CommMeasurement> Measure(const CommSample& sample) {
    FakeCommunicator communicator({.rank = 1, .world_size = 2}, script_, log_);
    return MeasureComm(communicator, device_, sample, settings_, stamp_, time_, stop_);
  }
  // What the fake peer says before the first iteration, when it has the same sample and the memory.
  void PeerAgreesOnTheSample() { script_.peer_values = {-1e300, -1e300, 0}; }

  MeasurementSettings settings_{.warmup_iterations = 2,
                                .min_iterations = 3,
                                .max_iterations = 5,
                                .target_relative_error = 1e-9,
                                .max_time_ms = 1'000'000};
  DeviceProperties device_{.name = "fake device",
                           .backend = "fake",
                           .collective_backend = "fake",
                           .memory_bytes = 1 << 20,
                           .details = {}};
  FakeTimekeeper time_;
  FakeDeviceScript script_;
  FakeDeviceLog log_;
  ManualStop stop_;
  RecordStamp stamp_{MeasurementEnvironment{}, [] { return std::int64_t{1}; }};
};

TEST_F(CommMeasurementTest, TimesOwnCompletionMinusOwnStart) {
  CommSample sample = Sample();
  sample.start_offsets_ms = {10, 13};
  NS_ASSERT_OK_AND_ASSIGN(const CommMeasurement record, Measure(sample));
  EXPECT_EQ(record.rank, 1);
  EXPECT_EQ(record.sample_id, "c-1");
  EXPECT_THAT(record.series.samples_ms, SizeIs(5));
  EXPECT_THAT(record.series.samples_ms, Each(7)) << "the delay before the start does not count";
  EXPECT_DOUBLE_EQ(time_.waited_ms(), 3 * (2 + 5)) << "3 ms after the first, in every iteration";
  EXPECT_EQ(log_.Count("all_to_all"), 2U + 5U);
  EXPECT_EQ(log_.Count("barrier"), 2U + 5U);
  EXPECT_EQ(record.series.warmup_iterations, 2);

  script_.holds_exchanges = true;  // the delay is within the call then
  NS_ASSERT_OK_AND_ASSIGN(const CommMeasurement held, Measure(sample));
  EXPECT_THAT(held.series.samples_ms, Each(7));
  EXPECT_DOUBLE_EQ(time_.waited_ms(), 2 * 3 * (2 + 5));
}

// In rows of 8 behind an exchange that does not count, with no barrier within a row.
TEST_F(CommMeasurementTest, BackToBackMeetsOnceARowAndDoesNotTimeWhatBeganThere) {
  settings_.min_iterations = settings_.max_iterations = 20;
  CommSample sample = Sample();
  sample.cadence = Cadence::kBackToBack;
  int exchange = 0;
  const std::vector<int> at_barriers = {0, 9, 18};
  script_.on_all_to_all = [&] {
    const bool first =
        std::find(at_barriers.begin(), at_barriers.end(), exchange++) != at_barriers.end();
    time_.Advance(std::chrono::milliseconds(first ? 1000 : 7));
  };
  for (const bool holds : {false, true}) {
    exchange = 0;
    script_.holds_exchanges = holds;
    NS_ASSERT_OK_AND_ASSIGN(const CommMeasurement record, Measure(sample));
    EXPECT_THAT(record.series.samples_ms, SizeIs(20));
    EXPECT_THAT(record.series.samples_ms, Each(7));
    EXPECT_EQ(exchange, 2 + 20 + 3);
    EXPECT_EQ(record.environment.properties.at("cadence"), "back_to_back");
  }
  EXPECT_EQ(log_.Count("barrier"), 2U * 3U);
  NS_ASSERT_OK_AND_ASSIGN(const CommMeasurement alone, Measure(Sample()));
  EXPECT_EQ(alone.environment.properties.at("cadence"), "barrier");
}

TEST_F(CommMeasurementTest, RunsTheCollectiveOfTheSample) {
  for (const Collective collective :
       {Collective::kReduceScatter, Collective::kAllGather, Collective::kAllReduce}) {
    CommSample sample = Sample();
    sample.collective = collective;
    sample.dim_sums = {8, 8};
    sample.start_offsets_ms = {0, 3};
    const std::string name(ToText(collective));
    NS_ASSERT_OK_AND_ASSIGN(const CommMeasurement record, Measure(sample));
    EXPECT_THAT(record.series.samples_ms, Each(7));
    EXPECT_EQ(log_.Count(name), 2U + 5U);
    EXPECT_EQ(log_.Count("reserve " + name + " 64"), 1U) << "4 / 2 samples x 8 columns x 4 B";
    EXPECT_EQ(record.environment.properties.at("collective"), name);
  }
  EXPECT_EQ(log_.Count("all_to_all"), 0U);
}

TEST_F(CommMeasurementTest, GoesOnWhileAnotherRankIsNotSatisfied) {
  settings_ = {.warmup_iterations = 0, .min_iterations = 6, .max_iterations = 1000};
  PeerAgreesOnTheSample();
  for (int i = 0; i < 20; ++i) script_.peer_values.push_back(1);  // "continue"
  NS_ASSERT_OK_AND_ASSIGN(const CommMeasurement record, Measure(Sample()));
  EXPECT_THAT(record.series.samples_ms, SizeIs(20));
  EXPECT_EQ(record.series.stop_reason, StopReason::kConverged);
}

TEST_F(CommMeasurementTest, StopsWhenAnotherRankIsOutOfTime) {
  PeerAgreesOnTheSample();
  for (int i = 0; i < 5; ++i) script_.peer_values.push_back(1);
  script_.peer_values.push_back(2);  // "out of time"
  NS_ASSERT_OK_AND_ASSIGN(const CommMeasurement record, Measure(Sample()));
  EXPECT_THAT(record.series.samples_ms, SizeIs(3));
  EXPECT_EQ(record.series.stop_reason, StopReason::kMaxTime);
}

TEST_F(CommMeasurementTest, MaxTimeCountsTheStartOffsets) {
  settings_.max_iterations = 1000;
  settings_.max_time_ms = 400;
  CommSample sample = Sample();
  sample.start_offsets_ms = {0, 93};
  NS_ASSERT_OK_AND_ASSIGN(const CommMeasurement record, Measure(sample));
  EXPECT_THAT(record.series.samples_ms, SizeIs(4));  // 4 x (93 + 7) ms
  EXPECT_EQ(record.series.stop_reason, StopReason::kMaxTime);
}

TEST_F(CommMeasurementTest, AStopOfAnyRankStopsAllAtTheSameBoundary) {
  PeerAgreesOnTheSample();
  script_.peer_values.insert(script_.peer_values.end(), {1, 1, 1, 3});
  EXPECT_THAT(Measure(Sample()), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(log_.Count("all_to_all"), 3U);

  stop_.Stop();
  script_.peer_values.clear();
  EXPECT_THAT(Measure(Sample()), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(log_.Count("all_to_all"), 3U);
}

TEST_F(CommMeasurementTest, RanksWithDifferentSamplesRefuse) {
  script_.peer_values = {1e300, -1e300};
  EXPECT_THAT(Measure(Sample()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("different samples")));
  EXPECT_EQ(log_.Count("all_to_all"), 0U);
}

TEST_F(CommMeasurementTest, OutOfMemoryAnywhereIsAValueEverywhere) {
  script_.peer_values = {-1e300, -1e300, 1};
  NS_ASSERT_OK_AND_ASSIGN(const CommMeasurement theirs, Measure(Sample()));
  EXPECT_EQ(theirs.outcome, Outcome::kOutOfMemory);
  EXPECT_THAT(theirs.detail, HasSubstr("another rank"));

  script_.peer_values.clear();
  script_.reserve = ResourceExhausted("no room");
  NS_ASSERT_OK_AND_ASSIGN(const CommMeasurement ours, Measure(Sample()));
  EXPECT_EQ(ours.outcome, Outcome::kOutOfMemory);
  EXPECT_THAT(ours.detail, HasSubstr("no room"));

  script_.reserve = absl::OkStatus();
  CommSample huge = Sample();
  huge.dim_sums = {std::int64_t{1} << 60, std::int64_t{1} << 60};
  NS_ASSERT_OK_AND_ASSIGN(const CommMeasurement overflow, Measure(huge));
  EXPECT_EQ(overflow.outcome, Outcome::kOutOfMemory);
  EXPECT_EQ(log_.Count("all_to_all"), 0U);
}

TEST_F(CommMeasurementTest, AFailedExchangeIsAnError) {
  script_.all_to_all = absl::AbortedError("peer 0 is gone");
  EXPECT_THAT(Measure(Sample()), StatusIs(absl::StatusCode::kAborted, HasSubstr("peer 0")));
}

}  // namespace
}  // namespace neuroshard
