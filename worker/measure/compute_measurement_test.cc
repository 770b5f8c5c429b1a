#include "worker/measure/compute_measurement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_device_backend.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::FakeDeviceBackend;
using ::neuroshard::testing::FakeDeviceLog;
using ::neuroshard::testing::FakeDeviceScript;
using ::neuroshard::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ComputeMeasurementTest : public ::testing::Test {
 protected:
  static ComputeSample Sample() {
    MeasuredShard shard{.table = "t", .rows = 100, .cols = 4, .pooling_factor = 2};
    shard.reuse_histogram[0] = 1;
    return {.sample_id = "s-1", .shards = {shard, shard}, .batch_size = 8, .seed = 3};
  }
  StatusOr<ComputeMeasurement> Measure(const ComputeSample& sample) {
    FakeDeviceBackend device(script_, log_);
    return MeasureCompute(device, sample, settings_, stamp_, stop_);
  }

  MeasurementSettings settings_{.warmup_iterations = 2,
                                .min_iterations = 3,
                                .max_iterations = 4,
                                .target_relative_error = 1e-9,
                                .max_time_ms = 1'000'000};
  FakeDeviceScript script_;
  FakeDeviceLog log_;
  ManualStop stop_;
  RecordStamp stamp_{MeasurementEnvironment{.worker_version = "1.2",
                                            .git_commit = "abc",
                                            .hostname = "h",
                                            .device = "",
                                            .backend = "",
                                            .properties = {{"os", "test"}}},
                     [] { return std::int64_t{1234}; }};
};

TEST_F(ComputeMeasurementTest, WarmsUpThenAlternatesForwardAndBackwardEachAfterAFlush) {
  NS_ASSERT_OK_AND_ASSIGN(const ComputeMeasurement record, Measure(Sample()));
  std::vector<std::string> expected = {"create_op"};
  for (int i = 0; i < 2 + 4; ++i) {
    for (const char* event :
         {"set_inputs", "flush", "time", "forward", "flush", "time", "backward"}) {
      expected.emplace_back(event);
    }
  }
  EXPECT_EQ(log_.events(), expected);
  EXPECT_EQ(record.forward.samples_ms.size(), 4U);
  EXPECT_EQ(record.backward.samples_ms.size(), 4U);
  EXPECT_EQ(record.forward.stop_reason, StopReason::kMaxIterations);
}

TEST_F(ComputeMeasurementTest, DevicesThatMakeIdsGetPlans) {
  script_.generates_ids = true;
  ASSERT_TRUE(Measure(Sample()).ok());
  EXPECT_EQ(log_.Count("set_inputs"), 0U);
  std::vector<std::string> generated;
  for (const std::string& event : log_.events()) {
    if (event.starts_with("generate_inputs")) generated.push_back(event);
  }
  ASSERT_EQ(generated.size(), 2U + 4U);  // two batches in turn, never timed
  EXPECT_NE(generated[0], generated[1]);
  EXPECT_EQ(generated[0], generated[2]);
}

TEST_F(ComputeMeasurementTest, LargePlansAreExpandedOnce) {
  script_.generates_ids = true;
  script_.memory_bytes = std::int64_t{1} << 50;
  ComputeSample sample = Sample();
  sample.shards[0].pooling_factor = 1e6;
  sample.batch_size = 1 << 20;  // 8 TiB of ids, which no host has
  NS_ASSERT_OK_AND_ASSIGN(const ComputeMeasurement record, Measure(sample));
  EXPECT_EQ(record.outcome, Outcome::kOk);
  const auto events = log_.events();
  EXPECT_EQ(std::count_if(events.begin(), events.end(),
                          [](const auto& event) { return event.starts_with("generate_inputs"); }),
            1);
}

TEST_F(ComputeMeasurementTest, WarmUpIsNotInTheRecordAndTheSeriesAreApart) {
  settings_.warmup_iterations = 1;
  script_.times_ms = {900, 900, /*timed*/ 1, 10, 3, 30, 2, 20, 4, 40};
  NS_ASSERT_OK_AND_ASSIGN(const ComputeMeasurement record, Measure(Sample()));
  EXPECT_THAT(record.forward.samples_ms, ElementsAre(1, 3, 2, 4));
  EXPECT_THAT(record.backward.samples_ms, ElementsAre(10, 30, 20, 40));
  EXPECT_DOUBLE_EQ(record.forward.median_ms, 2.5);
  EXPECT_DOUBLE_EQ(record.backward.median_ms, 25);
  EXPECT_DOUBLE_EQ(record.total_ms(), 27.5);
  EXPECT_EQ(record.forward.warmup_iterations, 1);
}

TEST_F(ComputeMeasurementTest, CachesAreFilledUntilTheyAreFullOrDoNotFill) {
  ComputeSample sample = Sample();
  for (MeasuredShard& shard : sample.shards) {
    shard.compute_kernel = ComputeKernel::kFusedUvmCaching;
    shard.cache_load_factor = 0.5;
  }
  const auto fillings = [&](std::vector<std::int64_t> free_slots) {
    script_.free_slots = std::move(free_slots);
    const std::size_t before = log_.Count("forward");
    EXPECT_TRUE(Measure(sample).ok());
    return static_cast<int>(log_.Count("forward") - before) - (2 + 4);  // less warm-up and timed
  };
  EXPECT_EQ(fillings({0}), 0);
  EXPECT_EQ(fillings({9, 5, 2, 0}), 3);
  EXPECT_EQ(fillings({9, 5}), 1 + kIdleFillingBatches);
  std::vector<std::int64_t> slow(2 * kMaxFillingBatches);
  for (std::size_t i = 0; i < slow.size(); ++i) slow[i] = std::ssize(slow) - static_cast<int>(i);
  EXPECT_EQ(fillings(slow), kMaxFillingBatches);
}

TEST_F(ComputeMeasurementTest, NoFlushWhenNotAsked) {
  settings_.flush_cache = false;
  ASSERT_TRUE(Measure(Sample()).ok());
  EXPECT_EQ(log_.Count("flush"), 0U);
}

TEST_F(ComputeMeasurementTest, GoesOnUntilBothSeriesAreSatisfied) {
  settings_ = {.warmup_iterations = 0, .min_iterations = 6, .max_iterations = 100};
  // Forward is steady from the start; backward only after a while.
  for (int i = 0; i < 100; ++i) {
    script_.times_ms.push_back(5);
    script_.times_ms.push_back(i % 2 == 0 && i < 8 ? 1 : 9);
  }
  NS_ASSERT_OK_AND_ASSIGN(const ComputeMeasurement record, Measure(Sample()));
  EXPECT_EQ(record.forward.stop_reason, StopReason::kConverged);
  EXPECT_EQ(record.backward.stop_reason, StopReason::kConverged);
  EXPECT_EQ(record.forward.samples_ms.size(), record.backward.samples_ms.size());
  EXPECT_GT(record.backward.samples_ms.size(), 6U);
  EXPECT_LT(record.backward.samples_ms.size(), 100U);
}

TEST_F(ComputeMeasurementTest, MaxTimeBoundsBothSeriesTogether) {
  settings_ = {.warmup_iterations = 0,
               .min_iterations = 2,
               .max_iterations = 1000,
               .target_relative_error = 1e-9,
               .max_time_ms = 100};
  for (int i = 0; i < 1000; ++i) {
    script_.times_ms.push_back(5 + 0.1 * i);
    script_.times_ms.push_back(20);
  }
  NS_ASSERT_OK_AND_ASSIGN(const ComputeMeasurement record, Measure(Sample()));
  EXPECT_EQ(record.forward.samples_ms.size(), 4U);
  EXPECT_EQ(record.forward.stop_reason, StopReason::kMaxTime);
}

TEST_F(ComputeMeasurementTest, OutOfMemoryIsAValue) {
  script_.create_op = ResourceExhausted("tables take 9 GiB, the device has 1 GiB");
  NS_ASSERT_OK_AND_ASSIGN(const ComputeMeasurement record, Measure(Sample()));
  EXPECT_EQ(record.outcome, Outcome::kOutOfMemory);
  EXPECT_THAT(record.detail, HasSubstr("9 GiB"));
  EXPECT_TRUE(record.forward.samples_ms.empty());
  EXPECT_EQ(record.environment.device, "fake device");
}

TEST_F(ComputeMeasurementTest, IdsThatDoNotFitAreOutOfMemoryBeforeTheyAreMade) {
  ComputeSample sample = Sample();
  sample.batch_size = 1 << 24;
  sample.shards[1].pooling_factor = 1e6;
  NS_ASSERT_OK_AND_ASSIGN(const ComputeMeasurement record, Measure(sample));
  EXPECT_EQ(record.outcome, Outcome::kOutOfMemory);
  EXPECT_THAT(record.detail, HasSubstr("ids"));
}

TEST_F(ComputeMeasurementTest, ManySamplesWithoutIdsAreNotHeldTwice) {
  ComputeSample sample = Sample();
  sample.shards = {sample.shards[0]};
  sample.shards[0].pooling_factor = 0;
  sample.batch_size = kMaxRotatedBytes / 8;  // offsets alone
  NS_ASSERT_OK_AND_ASSIGN(const ComputeMeasurement record, Measure(sample));
  EXPECT_EQ(record.environment.properties.at("distinct_batches"), "1");
}

TEST_F(ComputeMeasurementTest, OtherErrorsOfTheBackendAreErrors) {
  script_.create_op = InvalidArgument("no");
  EXPECT_THAT(Measure(Sample()), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(ComputeMeasurementTest, ListsWhatCannotBeMeasured) {
  ComputeSample sample = Sample();
  sample.shards[1].weight_dtype = DataType::kBf16;
  sample.shards[1].pooling_mode = PoolingMode::kNone;
  sample.shards[0].compute_kernel = ComputeKernel::kFusedUvm;
  sample.optimizer = Optimizer::kAdam;
  EXPECT_THAT(
      Measure(sample),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          AllOf(HasSubstr("shards[0].compute_kernel: this device measures fused, got fused_uvm"),
                HasSubstr("shards[1].weight_dtype: this device measures fp32, got bf16"),
                HasSubstr("shards[1].pooling_mode: this device measures sum, mean, got none"),
                HasSubstr("optimizer: this device measures sgd, rowwise_adagrad, got adam"))));
}

TEST_F(ComputeMeasurementTest, StopsAtTheNextIteration) {
  int timed = 0;
  script_.on_time = [&] {
    if (++timed == 3) stop_.Stop();  // the forward of the second iteration
  };
  EXPECT_THAT(Measure(Sample()), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(log_.Count("time"), 3U);
}

TEST_F(ComputeMeasurementTest, RecordTellsItsCircumstances) {
  NS_ASSERT_OK_AND_ASSIGN(const ComputeMeasurement record, Measure(Sample()));
  const MeasurementEnvironment& environment = record.environment;
  EXPECT_EQ(record.sample_id, "s-1");
  EXPECT_EQ(environment.worker_version, "1.2");
  EXPECT_EQ(environment.git_commit, "abc");
  EXPECT_EQ(environment.hostname, "h");
  EXPECT_EQ(environment.backend, "fake");
  EXPECT_EQ(environment.measured_at_unix_ms, 1234);
  EXPECT_EQ(environment.properties.at("os"), "test");
  EXPECT_EQ(environment.properties.at("target"), "none");
  EXPECT_THAT(environment.properties.at("settings"), HasSubstr("warmup_iterations=2"));
}

}  // namespace
}  // namespace neuroshard
