// Real processes of the worker's binary.
#include "worker/process/device_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "common/base/bytes.h"
#include "tests/support/faulty_fields.h"
#include "tests/support/status_matchers.h"
#include "worker/process/device_messages.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::IsOk;
using ::neuroshard::testing::StatusIs;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

DeviceProcessOptions Options() {
  WorkerOptions options;
  options.backend = WorkerBackend::kCpu;
  options.cpu.count = 2;
  options.cpu.memory_bytes = 64 * kMiB;
  return {.device = EncodeOpenDevice(options, 1),
          .program = std::string(NEUROSHARD_BIN_DIR) + "/neuroshard-worker"};
}

ComputeSample Sample(const std::string& id) {
  ComputeSample sample;
  sample.sample_id = id;
  sample.batch_size = 16;
  sample.shards = {{.table = "t", .rows = 50, .cols = 8, .pooling_factor = 2}};
  sample.shards[0].reuse_histogram[0] = 1;
  return sample;
}

MeasurementSettings Short() {
  MeasurementSettings settings;
  settings.warmup_iterations = 0;
  settings.min_iterations = 1;
  settings.max_iterations = 2;
  return settings;
}

// Goes on for minutes unless it is stopped.
MeasurementSettings Endless() {
  MeasurementSettings settings;
  settings.min_iterations = settings.max_iterations = 10'000;
  settings.max_time_ms = 600'000;
  return settings;
}

class DeviceProcessTest : public ::testing::Test {
 protected:
  void Start(DeviceProcessOptions options = Options()) {
    auto started = DeviceProcess::Start(
        std::move(options), [this](int, const std::string& how) { deaths_.push_back(how); });
    ASSERT_THAT(started, IsOk());
    device_ = *std::move(started);
  }
  // A measurement in progress.
  std::future<StatusOr<ComputeMeasurement>> Begin(const StopSignal& stop) {
    const double before = CpuSeconds();
    auto call = std::async(std::launch::async, [this, &stop] {
      return device_->MeasureCompute(Sample("endless"), Endless(), stop);
    });
    while (CpuSeconds() <= before) std::this_thread::yield();
    return call;
  }
  // Of the process.
  double CpuSeconds() const {
    std::ifstream file("/proc/" + std::to_string(device_->pid()) + "/stat");
    std::string word;
    double ticks = 0;
    for (int i = 1; i <= 15 && file >> word; ++i) ticks += i >= 14 ? std::stod(word) : 0;
    return ticks;
  }
  static bool Exists(pid_t pid) { return std::filesystem::exists("/proc/" + std::to_string(pid)); }

  const NeverStop never_{};
  std::vector<std::string> deaths_;
  std::unique_ptr<DeviceProcess> device_;
};

TEST_F(DeviceProcessTest, MeasuresWhatADeviceOfThisProcessWould) {
  Start();
  EXPECT_EQ(device_->properties().backend, "neuroshard-cpu");
  EXPECT_EQ(device_->properties().collective_backend, "neuroshard-tcp");
  EXPECT_EQ(device_->properties().memory_bytes, 64 * kMiB);
  EXPECT_THAT(device_->properties().embedding.optimizers, Contains(Optimizer::kLamb));
  NS_ASSERT_OK_AND_ASSIGN(const ComputeMeasurement record,
                          device_->MeasureCompute(Sample("a"), Short(), never_));
  EXPECT_EQ(record.sample_id, "a");
  EXPECT_EQ(record.forward.samples_ms.size(), 2U);
  EXPECT_EQ(record.environment.backend, "neuroshard-cpu");
  EXPECT_FALSE(record.environment.git_commit.empty());
  EXPECT_THAT(deaths_, ElementsAre());
}

TEST_F(DeviceProcessTest, FaultsKeepTheirFields) {
  Start();
  ComputeSample sample = Sample("bad");
  sample.shards[0].weight_dtype = DataType::kBf16;
  const Status status = device_->MeasureCompute(sample, Short(), never_).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(FaultyFields(status), ElementsAre("shards[0].weight_dtype"));
  EXPECT_THAT(device_->MeasureCompute(Sample("good"), Short(), never_), IsOk());
}

TEST_F(DeviceProcessTest, AStopEndsAMeasurementAndTheProcessStays) {
  Start();
  const pid_t pid = device_->pid();
  ManualStop stop;
  auto call = Begin(stop);
  stop.Stop();
  EXPECT_THAT(call.get(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(device_->MeasureCompute(Sample("next"), Short(), never_), IsOk())
      << "a stop is of one call";
  EXPECT_EQ(device_->pid(), pid);
}

TEST_F(DeviceProcessTest, AProcessThatDiesIsAnErrorThatSaysHowAndTheDeviceIsUsableAgain) {
  Start();
  // Not SIGSEGV, which sanitizers handle themselves.
  for (const int number : {SIGKILL, SIGABRT, SIGTRAP}) {
    auto call = Begin(never_);
    kill(device_->pid(), number);
    const Status status = call.get().status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal,
                                 AllOf(HasSubstr("device 1"),
                                       HasSubstr("SIG" + std::string(sigabbrev_np(number))))));
    EXPECT_THAT(device_->MeasureCompute(Sample("same lease"), Short(), never_),
                StatusIs(absl::StatusCode::kInternal, HasSubstr("SIG")));
    EXPECT_THAT(device_->Prepare(), IsOk());
    EXPECT_THAT(device_->MeasureCompute(Sample("next lease"), Short(), never_), IsOk());
  }
  EXPECT_EQ(deaths_.size(), 3U);
}

TEST_F(DeviceProcessTest, AProcessThatDiedIdleIsReplacedBeforeTheNextUse) {
  Start();
  const pid_t first = device_->pid();
  kill(first, SIGKILL);
  EXPECT_THAT(device_->Prepare(), IsOk());
  // The signal may come only after the question; a second one sees its effect for sure.
  while (Exists(first) && device_->pid() == first) EXPECT_THAT(device_->Prepare(), IsOk());
  EXPECT_NE(device_->pid(), first);
  EXPECT_THAT(device_->MeasureCompute(Sample("a"), Short(), never_), IsOk());
}

TEST_F(DeviceProcessTest, AProcessThatDoesNotAnswerAStopIsEnded) {
  DeviceProcessOptions options = Options();
  options.kill_grace = milliseconds(200);
  Start(options);
  ManualStop stop;
  auto call = Begin(stop);
  kill(device_->pid(), SIGSTOP);
  stop.Stop();
  EXPECT_THAT(call.get(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("did not answer in time")));
  EXPECT_THAT(device_->Prepare(), IsOk());
}

TEST_F(DeviceProcessTest, RanksOfTwoProcessesMeasureTogetherAndADeadOneBreaksTheGroup) {
  Start();
  auto other = DeviceProcess::Start(Options()).value();
  const CommunicatorSpec spec{.rank = 0, .world_size = 2, .timeout = milliseconds(20'000)};
  NS_ASSERT_OK_AND_ASSIGN(const std::string first, device_->OpenRank(spec));
  NS_ASSERT_OK_AND_ASSIGN(const std::string second,
                          other->OpenRank({.rank = 1, .world_size = 2, .timeout = spec.timeout}));
  EXPECT_THAT(FaultyFields(device_->ConnectRank({{0, first}, {1, "elsewhere"}})),
              ElementsAre("addresses[1].address"));
  const std::vector<RankAddress> addresses = {{0, first}, {1, second}};
  auto connecting = std::async(std::launch::async, [&] { return other->ConnectRank(addresses); });
  EXPECT_THAT(device_->ConnectRank(addresses), IsOk());
  EXPECT_THAT(connecting.get(), IsOk());

  CommSample sample;
  sample.sample_id = "c";
  sample.dim_sums = {8, 16};
  sample.batch_size = 64;
  auto measuring =
      std::async(std::launch::async, [&] { return other->MeasureComm(sample, Short(), never_); });
  EXPECT_THAT(device_->MeasureComm(sample, Short(), never_), IsOk());
  EXPECT_EQ(measuring.get().value().rank, 1);

  measuring =
      std::async(std::launch::async, [&] { return other->MeasureComm(sample, Endless(), never_); });
  kill(device_->pid(), SIGABRT);
  EXPECT_THAT(measuring.get(), StatusIs(absl::StatusCode::kAborted)) << "long before its timeout";
  EXPECT_THAT(device_->MeasureComm(sample, Short(), never_),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("SIGABRT")));
  device_->CloseRank();
  EXPECT_THAT(device_->Prepare(), IsOk());
  EXPECT_THAT(device_->OpenRank(spec), IsOk());
}

TEST_F(DeviceProcessTest, ACutOffEndsARankThatWaits) {
  Start();
  NS_ASSERT_OK_AND_ASSIGN(
      const std::string address,
      device_->OpenRank({.rank = 0, .world_size = 2, .timeout = milliseconds(600'000)}));
  const std::string peer = address.substr(0, address.size() - 32) + std::string(32, '0');
  auto connecting = std::async(std::launch::async, [&] {
    return device_->ConnectRank({{0, address}, {1, peer}});
  });
  while (connecting.wait_for(milliseconds(10)) != std::future_status::ready) device_->CutOff();
  EXPECT_THAT(connecting.get(), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(device_->MeasureCompute(Sample("a"), Short(), never_), IsOk());
}

TEST_F(DeviceProcessTest, ACutOffIsOverWithItsRank) {
  DeviceProcessOptions options = Options();
  options.kill_grace = milliseconds(4000);  // the stop below has to be answered within it
  Start(options);
  ASSERT_THAT(device_->OpenRank({.rank = 0, .world_size = 2, .timeout = milliseconds(20'000)}),
              IsOk());
  device_->CutOff();
  device_->CloseRank();
  ManualStop stop;
  auto call = Begin(stop);
  EXPECT_EQ(call.wait_for(options.kill_grace + milliseconds(500)), std::future_status::timeout);
  stop.Stop();
  EXPECT_THAT(call.get(), StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(DeviceProcessTest, TheProcessEndsWithItsOwner) {
  Start();
  const pid_t pid = device_->pid();
  EXPECT_TRUE(Exists(pid));
  device_.reset();
  EXPECT_FALSE(Exists(pid));
}

TEST_F(DeviceProcessTest, WhatCannotBeStartedSaysWhy) {
  DeviceProcessOptions options = Options();
  options.program = "/no/such/program";
  EXPECT_THAT(DeviceProcess::Start(options),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("/no/such/program")));
  options.program = "/bin/true";
  EXPECT_THAT(DeviceProcess::Start(options), StatusIs(absl::StatusCode::kInternal));
  options = Options();
  options.device.set_index(7);
  EXPECT_THAT(DeviceProcess::Start(options),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("only 2 devices")));
}

}  // namespace
}  // namespace neuroshard
