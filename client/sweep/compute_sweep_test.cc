#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "client/sweep/sweep_run.h"
#include "client/sweep/testing/sweep_fixture.h"
#include "tests/support/fake_worker.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using testing::FakeWorker;
using testing::FakeWorkerScript;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

std::vector<ComputeSample> SomeSamples(int count) {
  std::vector<ComputeSample> samples;
  for (int i = 0; i < count; ++i) {
    MeasuredShard shard;
    shard.rows = 100;
    shard.cols = 4;
    shard.reuse_histogram[0] = 1;
    samples.push_back({fmt::format("c{:06}", i), {shard}, 8, Optimizer::kSgd, 1});
  }
  return samples;
}

class ComputeSweepTest : public testing::SweepFixture {
 protected:
  // What `neuroshard sweep compute` does on every run.
  SweepReport Sweep(int count, FleetOptions fleet) {
    const auto id = store_->BeginSweep<ComputeSample>({"test", "hash", ""}, SomeSamples(count));
    EXPECT_THAT(id, IsOk());
    sweep_id_ = *id;
    auto pending = store_->PendingSamples<ComputeSample>(sweep_id_);
    EXPECT_THAT(pending, IsOk());
    return RunSweep(Run(std::move(fleet)), *std::move(pending));
  }

  // Every record is there, and none was written twice (the store refuses that as an error of the
  // run).
  void ExpectComplete(int count) const {
    EXPECT_EQ(Statistics().samples, count);
    EXPECT_EQ(Statistics().pending(), 0);
  }
};

TEST_F(ComputeSweepTest, OnlyDevicesThatHaveTheKernelsAreAsked) {
  auto samples = SomeSamples(4);
  samples[2].shards[0].compute_kernel = ComputeKernel::kFusedUvm;
  const auto id = store_->BeginSweep<ComputeSample>({"test", "hash", ""}, samples);
  ASSERT_THAT(id, IsOk());
  sweep_id_ = *id;
  FakeWorker old({.num_devices = 2});
  EXPECT_THAT(RunSweep(Run(QuickFleet({old.address()})), samples).status,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("4 samples are not measured")));
  EXPECT_TRUE(old.measured().empty());
  FakeWorker able({.compute_kernels = {"fused", "fused_uvm"}});
  const SweepReport report = RunSweep(Run(QuickFleet({old.address(), able.address()})), samples);
  EXPECT_THAT(report.status, IsOk());
  EXPECT_EQ(able.measured().size(), 4u);
  EXPECT_TRUE(old.measured().empty());
  ASSERT_EQ(report.lost.size(), 2u);
  EXPECT_THAT(report.lost[0].reason, HasSubstr("does not measure fused_uvm"));
}

TEST_F(ComputeSweepTest, AllDevicesOfAllWorkersShareTheSamples) {
  FakeWorker a({.num_devices = 2});
  FakeWorker b({.num_devices = 2});
  const SweepReport report = Sweep(60, QuickFleet({a.address(), b.address()}));
  EXPECT_THAT(report.status, IsOk());
  EXPECT_EQ(report.recorded, 60);
  ExpectComplete(60);
  EXPECT_EQ(a.measured().size() + b.measured().size(), 60u);
}

TEST_F(ComputeSweepTest, SamplesOfAWorkerThatDiesGoToTheOthers) {
  FakeWorker dying({.dies_after_samples = 3});
  // Away until the other one has died: it may have measured everything before.
  FakeWorker healthy({.dies_after_samples = 0});
  std::atomic<bool> ended = false;
  std::thread operator_of_the_worker([&] {
    while (!ended && (!dying.dead() || !healthy.dead())) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    healthy.Revive();
  });
  const SweepReport report = Sweep(200, QuickFleet({dying.address(), healthy.address()}));
  ended = true;
  operator_of_the_worker.join();
  EXPECT_THAT(report.status, IsOk());
  EXPECT_EQ(report.recorded, 200);
  EXPECT_TRUE(report.given_up.empty());
  ExpectComplete(200);
  ASSERT_EQ(report.lost.size(), 1u);
  EXPECT_EQ(report.lost[0].worker, dying.address());
  EXPECT_EQ(report.lost[0].device, 0);
}

TEST_F(ComputeSweepTest, WithoutWorkersLeftItEndsAndTheNextRunMeasuresOnlyTheRest) {
  FakeWorker dying({.dies_after_samples = 5});
  FleetOptions fleet = QuickFleet({dying.address()});
  fleet.reconnect_window = std::chrono::milliseconds(50);
  const SweepReport first = Sweep(20, fleet);
  EXPECT_THAT(first.status,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no worker is left")));
  EXPECT_EQ(first.recorded, 5);
  EXPECT_EQ(first.lost.size(), 1u);

  FakeWorker fresh;
  const SweepReport second = Sweep(20, QuickFleet({fresh.address()}));
  EXPECT_THAT(second.status, IsOk());
  EXPECT_EQ(second.recorded, 15);
  EXPECT_EQ(fresh.measured().size(), 15u);
  ExpectComplete(20);
}

TEST_F(ComputeSweepTest, AWorkerThatComesBackIsUsedAgain) {
  FakeWorker worker({.dies_after_samples = 3});
  std::thread operator_of_the_worker([&] {
    while (!worker.dead()) std::this_thread::yield();
    worker.Revive();
  });
  const SweepReport report = Sweep(20, QuickFleet({worker.address()}));
  operator_of_the_worker.join();
  EXPECT_THAT(report.status, IsOk());
  ExpectComplete(20);
  EXPECT_TRUE(report.lost.empty());
}

TEST_F(ComputeSweepTest, OutOfMemoryIsARecord) {
  FakeWorker worker({.out_of_memory = {"c000001", "c000003"}});
  const SweepReport report = Sweep(5, QuickFleet({worker.address()}));
  EXPECT_THAT(report.status, IsOk());
  EXPECT_EQ(report.out_of_memory, 2);
  ExpectComplete(5);
  EXPECT_EQ(Statistics().out_of_memory, 2);
  EXPECT_EQ(Sweep(5, QuickFleet({worker.address()})).recorded, 0) << "measured again";
}

TEST_F(ComputeSweepTest, ABusyDeviceIsWaitedFor) {
  FakeWorker worker({.busy_streams = 8});
  const SweepReport report = Sweep(5, QuickFleet({worker.address()}));
  EXPECT_THAT(report.status, IsOk());
  EXPECT_TRUE(report.given_up.empty()) << "a busy device is not the sample's fault";
  ExpectComplete(5);
  EXPECT_THAT(messages_.str(), HasSubstr("held by another job"));
}

TEST_F(ComputeSweepTest, ARefusedSampleIsGivenUpAndTheOthersAreMeasured) {
  FakeWorker worker({.refused = {"c000002"}});
  const SweepReport report = Sweep(6, QuickFleet({worker.address()}));
  EXPECT_THAT(report.status, IsOk());
  ASSERT_EQ(report.given_up.size(), 1u);
  EXPECT_EQ(report.given_up[0].sample_id, "c000002");
  EXPECT_EQ(report.recorded, 5);
  EXPECT_EQ(Statistics().pending(), 1);
}

TEST_F(ComputeSweepTest, ASampleThatAlwaysBreaksTheStreamIsGivenUpAfterItsAttempts) {
  FakeWorker worker({.breaks_always = {"c000000"}});
  const SweepReport report = Sweep(4, QuickFleet({worker.address()}));
  EXPECT_THAT(report.status, IsOk());
  ASSERT_EQ(report.given_up.size(), 1u);
  EXPECT_EQ(report.recorded, 3);
}

TEST_F(ComputeSweepTest, TooManyRefusalsEndTheRun) {
  FakeWorkerScript script;
  for (const ComputeSample& sample : SomeSamples(50)) script.refused.insert(sample.sample_id);
  FakeWorker worker(script);
  const SweepReport report = Sweep(50, QuickFleet({worker.address()}));
  EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("refused")));
  EXPECT_EQ(report.given_up.size(), 11u);
}

TEST_F(ComputeSweepTest, AWorkerThatDoesNotAnswerLosesItsSample) {
  FakeWorker stuck({.hangs = {"c000000", "c000001", "c000002"}});
  FakeWorker healthy;
  FleetOptions fleet = QuickFleet({stuck.address(), healthy.address()});
  fleet.sample_deadline = std::chrono::milliseconds(300);
  const SweepReport report = Sweep(12, fleet);
  EXPECT_THAT(report.status, IsOk());
  EXPECT_EQ(report.recorded + static_cast<std::int64_t>(report.given_up.size()), 12);
}

TEST_F(ComputeSweepTest, AStopCancelsWhatIsInFlightAndKeepsWhatIsDone) {
  FakeWorker worker({.hangs = {"c000003"}});
  std::thread user([&] {
    while (!worker.hanging()) std::this_thread::yield();
    stop_.Stop();
  });
  const SweepReport report = Sweep(10, QuickFleet({worker.address()}));
  user.join();
  EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(report.recorded, 3);
  EXPECT_TRUE(report.lost.empty());
  EXPECT_EQ(Statistics().pending(), 7);
}

TEST_F(ComputeSweepTest, NothingPendingNeedsNothingOfTheWorkers) {
  FakeWorker worker;
  EXPECT_EQ(Sweep(3, QuickFleet({worker.address()})).recorded, 3);
  const SweepReport again = Sweep(3, QuickFleet({worker.address()}));
  EXPECT_THAT(again.status, IsOk());
  EXPECT_EQ(again.recorded, 0);
}

TEST_F(ComputeSweepTest, WhatAnotherClientRecordedMeanwhileIsNeitherAnErrorNorWrittenTwice) {
  FakeWorker worker;
  const auto id = store_->BeginSweep<ComputeSample>({"test", "hash", ""}, SomeSamples(4));
  ASSERT_THAT(id, IsOk());
  sweep_id_ = *id;
  const auto pending = store_->PendingSamples<ComputeSample>(sweep_id_);
  ASSERT_THAT(pending, IsOk());
  EXPECT_EQ(RunSweep(Run(QuickFleet({worker.address()})), *pending).recorded, 4);
  const SweepReport late = RunSweep(Run(QuickFleet({worker.address()})), *pending);
  EXPECT_THAT(late.status, IsOk());
  EXPECT_EQ(late.recorded, 0);
  ExpectComplete(4);
}

TEST_F(ComputeSweepTest, DevicesPerWorkerLimitsTheStreams) {
  FakeWorker worker({.num_devices = 4, .busy_streams = 1});
  FleetOptions fleet = QuickFleet({worker.address()});
  fleet.devices_per_worker = 1;
  const SweepReport report = Sweep(5, fleet);
  EXPECT_THAT(report.status, IsOk());
  EXPECT_THAT(messages_.str(), HasSubstr("device 0"));
}

}  // namespace
}  // namespace neuroshard
