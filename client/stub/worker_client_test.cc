#include "client/stub/worker_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/fake_worker.h"
#include "tests/support/silent_port.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using std::chrono::milliseconds;
using testing::FakeWorker;
using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::Pair;
using testing::SilentPort;
using testing::StatusIs;
using ::testing::UnorderedElementsAre;

constexpr milliseconds kLong{30'000};

ComputeSample Sample(const std::string& id) {
  MeasuredShard shard;
  shard.rows = 10;
  shard.cols = 4;
  return {id, {shard}, 8, Optimizer::kSgd, 1};
}

// device_of_rank[r]: the device that plays rank r, all of them on one worker.
v1::OpenCommGroupRequest Group(const std::vector<int>& device_of_rank) {
  v1::OpenCommGroupRequest request;
  request.set_group_id("g");
  request.set_world_size(static_cast<int>(device_of_rank.size()));
  for (std::size_t rank = 0; rank < device_of_rank.size(); ++rank) {
    v1::LocalRank& local = *request.add_local_ranks();
    local.set_rank(static_cast<int>(rank));
    local.set_device(device_of_rank[rank]);
  }
  return request;
}

TEST(WorkerClientTest, DescribesTheWorker) {
  FakeWorker worker({.num_devices = 2});
  const auto info = WorkerClient(worker.address()).GetWorkerInfo();
  ASSERT_THAT(info, IsOk());
  ASSERT_EQ(info->devices_size(), 2);
  EXPECT_EQ(info->devices(1).index(), 1);
}

TEST(WorkerClientTest, AWorkerThatNeverAnswersIsLeftAtTheDeadline) {
  const SilentPort silent;
  CallPolicy policy;
  policy.deadline = milliseconds(300);
  EXPECT_THAT(
      WorkerClient(silent.address(), policy).GetWorkerInfo(),
      StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("worker at " + silent.address())));
}

TEST(ComputeStreamTest, AnswersEachSampleAndEndsInOrder) {
  FakeWorker worker({.out_of_memory = {"b"}});
  const WorkerClient client(worker.address());
  const auto stream = client.OpenComputeStream(0, {});
  const auto first = stream->Measure(Sample("a"), kLong);
  ASSERT_THAT(first, IsOk());
  EXPECT_EQ(first->total_ms(), 3.0);
  const auto second = stream->Measure(Sample("b"), kLong);
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(second->outcome, Outcome::kOutOfMemory);
  EXPECT_THAT(stream->Finish(), IsOk());
}

TEST(ComputeStreamTest, AWorkerThatDoesNotAnswerIsLeftAtTheDeadline) {
  FakeWorker worker({.hangs = {"a"}});
  const WorkerClient client(worker.address());
  const auto stream = client.OpenComputeStream(0, {});
  EXPECT_THAT(stream->Measure(Sample("a"), milliseconds(50)),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_FALSE(stream->Measure(Sample("b"), kLong).ok()) << "the stream is over";
}

TEST(ComputeStreamTest, CancelEndsAMeasurementInProgress) {
  FakeWorker worker({.hangs = {"a"}});
  const WorkerClient client(worker.address());
  const auto stream = client.OpenComputeStream(0, {});
  std::thread other([&] { client.Cancel(); });
  EXPECT_THAT(stream->Measure(Sample("a"), kLong), StatusIs(absl::StatusCode::kCancelled));
  other.join();
  EXPECT_FALSE(stream->Measure(Sample("b"), kLong).ok());
}

TEST(ComputeStreamTest, FailuresOfTheWorkerKeepTheirCodeAndNameIt) {
  FakeWorker worker({.refused = {"a"}});
  const WorkerClient client(worker.address());
  EXPECT_THAT(client.OpenComputeStream(0, {})->Measure(Sample("a"), kLong),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(worker.address())));
  EXPECT_THAT(WorkerClient("127.0.0.1:1").OpenComputeStream(0, {})->Measure(Sample("a"), kLong),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("127.0.0.1:1")));
}

TEST(ComputeStreamTest, AStreamThatIsDroppedUnusedOrHalfwayIsNoTrouble) {
  FakeWorker worker;
  const WorkerClient client(worker.address());
  EXPECT_THAT(client.OpenComputeStream(0, {})->Finish(), IsOk());
  EXPECT_THAT(client.OpenComputeStream(0, {})->Measure(Sample("a"), kLong), IsOk());
}

TEST(WorkerClientTest, CommGroupFromOpenToClose) {
  FakeWorker worker({.num_devices = 2});
  const WorkerClient client(worker.address());
  const auto group = client.OpenCommGroup(Group({1, 0}));
  ASSERT_THAT(group, IsOk());
  EXPECT_THAT(group->addresses, UnorderedElementsAre(Pair(0, "rank 0"), Pair(1, "rank 1")));
  EXPECT_THAT(client.ConnectCommGroup(*group, {"rank 0", "rank 1"}), IsOk());
  CommSample sample;
  sample.sample_id = "m";
  sample.dim_sums = {4, 8};
  sample.batch_size = 8;
  const auto measurements = client.ProfileComm(*group, {}, sample, kLong);
  ASSERT_THAT(measurements, IsOk());
  EXPECT_EQ(measurements->size(), 2u);
  EXPECT_THAT(client.CloseCommGroup(*group), IsOk());
  EXPECT_EQ(worker.open_groups(), 0);
}

TEST(WorkerClientTest, CancelEndsCallsNowAndLaterButNotClose) {
  FakeWorker worker({.hangs = {"m"}});
  const WorkerClient client(worker.address());
  const auto group = client.OpenCommGroup(Group({0}));
  ASSERT_THAT(group, IsOk());
  std::thread other([&] { client.Cancel(); });
  CommSample sample;
  sample.sample_id = "m";
  sample.dim_sums = {4};
  sample.batch_size = 8;
  EXPECT_THAT(client.ProfileComm(*group, {}, sample, kLong),
              StatusIs(absl::StatusCode::kCancelled));
  other.join();
  EXPECT_THAT(client.OpenCommGroup(Group({0})), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(client.GetWorkerInfo(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(client.CloseCommGroup(*group), IsOk());
}

}  // namespace
}  // namespace neuroshard
