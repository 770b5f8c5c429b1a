// Comm groups whose ranks live in several workers, over real sockets; the test relays the addresses
// as a client does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "common/base/bytes.h"
#include "common/rpc/status_mapping.h"
#include "kernels/tcp/tcp_backend.h"
#include "tests/support/faulty_fields.h"
#include "tests/support/test_worker.h"
#include "worker/device/cpu_devices.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::TestWorker;
using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int kWorkers = 2;
constexpr int kDevices = 2;  // per worker

class CommGroupServiceTest : public ::testing::Test {
 protected:
  CommGroupServiceTest() {
    for (int i = 0; i < kWorkers; ++i) {
      workers_.push_back(std::make_unique<TestWorker>(
          CpuDeviceSpecs({.count = kDevices, .memory_bytes = 64 * kMiB},
                         std::make_shared<const TcpBackend>(CollectiveOptions{}))));
    }
  }

  // Worker w provides ranks w * kDevices + d.
  static v1::OpenCommGroupRequest OpenRequest(int worker, std::int64_t timeout_ms = 20'000) {
    v1::OpenCommGroupRequest request;
    request.set_group_id("g");
    request.set_world_size(kWorkers * kDevices);
    request.set_timeout_ms(timeout_ms);
    for (int device = 0; device < kDevices; ++device) {
      v1::LocalRank* local = request.add_local_ranks();
      local->set_rank(worker * kDevices + device);
      local->set_device(device);
    }
    return request;
  }

  void OpenAndConnect(std::int64_t timeout_ms = 20'000) {
    v1::ConnectCommGroupRequest connect;
    connect.set_group_id("g");
    for (int i = 0; i < kWorkers; ++i) {
      grpc::ClientContext context;
      v1::OpenCommGroupResponse response;
      const grpc::Status status =
          workers_[i]->stub().OpenCommGroup(&context, OpenRequest(i, timeout_ms), &response);
      ASSERT_TRUE(status.ok()) << status.error_message();
      tokens_[workers_[i].get()] = response.token();
      connect.mutable_addresses()->MergeFrom(response.addresses());
    }
    for (const grpc::Status& status : OnAllWorkers([&](TestWorker& worker) {
           grpc::ClientContext context;
           v1::ConnectCommGroupRequest request = connect;
           request.set_token(tokens_.at(&worker));
           v1::ConnectCommGroupResponse response;
           return worker.stub().ConnectCommGroup(&context, request, &response);
         })) {
      ASSERT_TRUE(status.ok()) << status.error_message();
    }
  }

  std::vector<grpc::Status> OnAllWorkers(const std::function<grpc::Status(TestWorker&)>& call) {
    std::vector<std::future<grpc::Status>> calls;
    for (auto& worker : workers_) {
      calls.push_back(std::async(std::launch::async, call, std::ref(*worker)));
    }
    std::vector<grpc::Status> statuses;
    for (auto& one : calls) statuses.push_back(one.get());
    return statuses;
  }

  static v1::ProfileCommRequest CommRequest() {
    v1::ProfileCommRequest request;
    request.set_group_id("g");
    request.mutable_settings()->set_warmup_iterations(1);
    request.mutable_settings()->set_min_iterations(3);
    request.mutable_settings()->set_max_iterations(6);
    v1::CommSample& sample = *request.mutable_sample();
    sample.set_sample_id("c");
    sample.set_direction("forward");
    for (const int dim_sum : {16, 0, 8, 64}) sample.add_dim_sums(dim_sum);
    for (const double offset_ms : {0.0, 1.0, 0.5, 2.0}) sample.add_start_offsets_ms(offset_ms);
    sample.set_batch_size(64);
    return request;
  }

  grpc::Status Profile(TestWorker& worker, v1::ProfileCommRequest request,
                       v1::ProfileCommResponse* response) const {
    grpc::ClientContext context;
    request.set_token(Token(worker));
    return worker.stub().ProfileComm(&context, request, response);
  }

  static grpc::StatusCode Close(TestWorker& worker, const std::string& token) {
    grpc::ClientContext context;
    v1::CloseCommGroupRequest request;
    request.set_group_id("g");
    request.set_token(token);
    v1::CloseCommGroupResponse response;
    return worker.stub().CloseCommGroup(&context, request, &response).error_code();
  }
  void Close(TestWorker& worker) const {
    EXPECT_EQ(Close(worker, Token(worker)), grpc::StatusCode::OK);
  }

  // Of the worker's group; empty before there was one.
  std::string Token(TestWorker& worker) const {
    const auto found = tokens_.find(&worker);
    return found == tokens_.end() ? "" : found->second;
  }

  static void ExpectDevicesFree(TestWorker& worker) {
    for (int i = 0; i < kDevices; ++i) EXPECT_EQ(worker.RunningJob(i), "");
  }

  std::vector<std::unique_ptr<TestWorker>> workers_;
  std::map<TestWorker*, std::string> tokens_;
};

// Those over TCP, by the name of another.
class OtherCollectives final : public CollectiveBackend {
 public:
  std::string name() const override { return "nccl"; }
  std::map<std::string, std::string> details() const override { return {}; }
  StatusOr<std::unique_ptr<PendingCommunicator>> Open(const CommunicatorSpec& spec) const override {
    return tcp_.Open(spec);
  }

 private:
  const TcpBackend tcp_{CollectiveOptions{}};
};

TEST_F(CommGroupServiceTest, RanksOfOtherCollectivesRefuseDistributionsOfIdsByName) {
  workers_.clear();
  workers_.push_back(std::make_unique<TestWorker>(CpuDeviceSpecs(
      {.count = 1, .memory_bytes = 64 * kMiB}, std::make_shared<const OtherCollectives>())));
  TestWorker& worker = *workers_.front();
  v1::OpenCommGroupRequest open = OpenRequest(0);
  open.set_world_size(1);
  open.mutable_local_ranks()->DeleteSubrange(1, 1);
  grpc::ClientContext context;
  v1::OpenCommGroupResponse opened;
  ASSERT_TRUE(worker.stub().OpenCommGroup(&context, open, &opened).ok());
  tokens_[&worker] = opened.token();
  v1::ProfileCommRequest request = CommRequest();
  v1::CommSample sample;
  sample.set_sample_id("m0i");
  sample.set_collective("input_dist");
  sample.add_dim_sums(0);
  sample.set_batch_size(8);
  sample.mutable_input_distribution()->add_whole_features(1);
  sample.mutable_input_distribution()->add_whole_ids(2);
  *request.mutable_sample() = sample;
  v1::ProfileCommResponse response;
  const grpc::Status refused = Profile(worker, request, &response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(),
              HasSubstr("sample.collective: input_dist is measured by neuroshard-tcp alone, and "
                        "rank 0 has nccl"));
  sample = {};
  sample.set_sample_id("m0f");
  sample.set_direction("forward");
  sample.set_wire_dtype("fp16");
  sample.add_dim_sums(8);
  sample.set_batch_size(8);
  *request.mutable_sample() = sample;
  const grpc::Status casts = Profile(worker, request, &response);
  EXPECT_EQ(casts.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(casts.error_message(), HasSubstr("sample.wire_dtype: fp16 is measured by "
                                               "neuroshard-tcp alone, and rank 0 has nccl"));
}

TEST_F(CommGroupServiceTest, MeasuresCasts) {
  OpenAndConnect();
  v1::ProfileCommRequest request = CommRequest();
  request.mutable_sample()->clear_element_bytes();
  request.mutable_sample()->set_wire_dtype("bf16");
  std::mutex mutex;
  std::vector<v1::CommMeasurement> records;
  const auto statuses = OnAllWorkers([&](TestWorker& worker) {
    v1::ProfileCommResponse response;
    const grpc::Status profiled = Profile(worker, request, &response);
    const std::lock_guard lock(mutex);
    for (const auto& record : response.measurements()) records.push_back(record);
    return profiled;
  });
  for (const grpc::Status& status : statuses) ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_THAT(records, SizeIs(kWorkers * kDevices));
  for (const v1::CommMeasurement& record : records) {
    const auto& properties = record.environment().properties();
    EXPECT_EQ(properties.at("wire_dtype"), "bf16");
    const double casts_ms = std::stod(properties.at("casts_ms"));
    EXPECT_GT(casts_ms, 0);
    EXPECT_LT(casts_ms, record.series().median_ms());
  }
}

TEST_F(CommGroupServiceTest, MeasuresDistributionsOfIds) {
  OpenAndConnect();
  v1::ProfileCommRequest request = CommRequest();
  v1::CommSample& sample = *request.mutable_sample();
  sample.set_collective("input_dist");
  sample.clear_direction();
  sample.clear_start_offsets_ms();
  for (auto& dim_sum : *sample.mutable_dim_sums()) dim_sum = 0;
  v1::InputDistribution& input = *sample.mutable_input_distribution();
  for (const int features : {1, 0, 2, 1}) {
    input.add_whole_features(features);
    input.add_whole_ids(3.5 * features);
  }
  input.set_cut_features(2);
  input.set_cut_ids(8);
  input.set_weighted(true);
  std::mutex mutex;
  std::vector<v1::CommMeasurement> records;
  const auto measure = [&] {
    return OnAllWorkers([&](TestWorker& worker) {
      v1::ProfileCommResponse response;
      const grpc::Status profiled = Profile(worker, request, &response);
      const std::lock_guard lock(mutex);
      for (const auto& record : response.measurements()) records.push_back(record);
      return profiled;
    });
  };
  for (const grpc::Status& status : measure()) ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_THAT(records, SizeIs(kWorkers * kDevices));
  for (const v1::CommMeasurement& record : records) {
    EXPECT_EQ(record.outcome(), "ok");
    EXPECT_EQ(record.environment().properties().at("collective"), "input_dist");
    EXPECT_GT(record.series().median_ms(), 0);
  }
  // Far more than a device's 64 MiB is a value on all ranks, found before anything is drawn.
  input.set_cut_ids(1e6);
  records.clear();
  for (const grpc::Status& status : measure()) ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_THAT(records, SizeIs(kWorkers * kDevices));
  for (const v1::CommMeasurement& record : records) EXPECT_EQ(record.outcome(), "out_of_memory");
}

TEST_F(CommGroupServiceTest, MeasuresEveryCollectiveOnOneGroup) {
  OpenAndConnect();
  for (const char* collective : {"reduce_scatter", "all_gather", "all_reduce", "all_to_all"}) {
    SCOPED_TRACE(collective);
    v1::ProfileCommRequest request = CommRequest();
    v1::CommSample& sample = *request.mutable_sample();
    sample.set_collective(collective);
    for (auto& dim_sum : *sample.mutable_dim_sums()) dim_sum = 16;
    sample.set_start_offsets_ms(3, 100);
    std::mutex mutex;
    std::vector<v1::CommMeasurement> records;
    for (const grpc::Status& status : OnAllWorkers([&](TestWorker& worker) {
           v1::ProfileCommResponse response;
           const grpc::Status profiled = Profile(worker, request, &response);
           const std::lock_guard lock(mutex);
           for (const auto& record : response.measurements()) records.push_back(record);
           return profiled;
         })) {
      ASSERT_TRUE(status.ok()) << status.error_message();
    }
    ASSERT_THAT(records, SizeIs(kWorkers * kDevices));
    for (const v1::CommMeasurement& record : records) {
      EXPECT_EQ(record.outcome(), "ok");
      EXPECT_EQ(record.environment().properties().at("collective"), collective);
      // Everybody waits for rank 3, which enters 100 ms after rank 0. On a loaded machine rank 0 is
      // late by itself, and no upper bound holds.
      if (record.rank() == 0) {
        EXPECT_GE(record.series().median_ms(), 20);
      }
    }
  }
  v1::ProfileCommRequest uneven = CommRequest();
  uneven.mutable_sample()->set_collective("all_gather");
  v1::ProfileCommResponse response;
  EXPECT_EQ(Profile(*workers_[0], uneven, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(CommGroupServiceTest, MeasuresOnFourRanksOfTwoWorkers) {
  OpenAndConnect();
  for (const char* direction : {"forward", "backward"}) {
    v1::ProfileCommRequest request = CommRequest();
    request.mutable_sample()->set_direction(direction);
    std::vector<v1::ProfileCommResponse> responses(kWorkers);
    const auto statuses = OnAllWorkers([&](TestWorker& worker) {
      return Profile(worker, request, &responses[&worker == workers_[0].get() ? 0 : 1]);
    });
    for (const grpc::Status& status : statuses) ASSERT_TRUE(status.ok()) << status.error_message();
    int rank = 0;
    for (const v1::ProfileCommResponse& response : responses) {
      ASSERT_EQ(response.measurements_size(), kDevices);
      for (const v1::CommMeasurement& record : response.measurements()) {
        EXPECT_EQ(record.rank(), rank++);
        EXPECT_EQ(record.outcome(), "ok");
        EXPECT_EQ(record.sample_id(), "c");
        EXPECT_EQ(record.series().samples_ms_size(),
                  responses[0].measurements(0).series().samples_ms_size())
            << "all ranks run the same number of iterations";
        EXPECT_THAT(record.series().samples_ms(), Each(Ge(0.0)));
      }
    }
  }
  for (auto& worker : workers_) {
    Close(*worker);
    Close(*worker);
    ExpectDevicesFree(*worker);
  }
}

TEST_F(CommGroupServiceTest, EarlyRanksWaitForTheLastWhenAllReceiveFromIt) {
  OpenAndConnect();
  v1::ProfileCommRequest request = CommRequest();
  request.mutable_sample()->set_start_offsets_ms(3, 100);
  std::vector<v1::ProfileCommResponse> responses(kWorkers);
  OnAllWorkers([&](TestWorker& worker) {
    return Profile(worker, request, &responses[&worker == workers_[0].get() ? 0 : 1]);
  });
  ASSERT_THAT(responses[0].measurements(), SizeIs(kDevices));
  // Barriers let ranks go within far less than the 80 ms that this leaves, even on a loaded machine
  // with fewer cores than ranks.
  EXPECT_GE(responses[0].measurements(0).series().median_ms(), 20);
}

TEST_F(CommGroupServiceTest, RefusesSamplesThatDoNotSuitTheGroup) {
  OpenAndConnect();
  v1::ProfileCommRequest request = CommRequest();
  request.mutable_sample()->add_dim_sums(1);
  request.mutable_sample()->set_batch_size(65);
  request.mutable_sample()->mutable_start_offsets_ms()->Clear();
  v1::ProfileCommResponse response;
  const grpc::Status status = Profile(*workers_[0], request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("sample.dim_sums"));
  EXPECT_THAT(status.error_message(), HasSubstr("sample.batch_size"));
}

TEST_F(CommGroupServiceTest, UnknownGroupIsNotFound) {
  v1::ProfileCommResponse response;
  EXPECT_EQ(Profile(*workers_[0], CommRequest(), &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(CommGroupServiceTest, WorkersWithDifferentSamplesRefuseAndStayUsable) {
  OpenAndConnect();
  const auto run = [this](bool different) {
    return OnAllWorkers([&](TestWorker& worker) {
      v1::ProfileCommRequest request = CommRequest();
      if (different && &worker == workers_[1].get()) request.mutable_sample()->set_batch_size(128);
      v1::ProfileCommResponse response;
      return Profile(worker, request, &response);
    });
  };
  for (const grpc::Status& status : run(true)) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  }
  for (const grpc::Status& status : run(false)) EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(CommGroupServiceTest, APeerThatGoesAwayAbortsTheGroupAndTheDevicesCanBeLeasedAgain) {
  OpenAndConnect();
  Close(*workers_[1]);
  v1::ProfileCommResponse response;
  EXPECT_EQ(Profile(*workers_[0], CommRequest(), &response).error_code(),
            grpc::StatusCode::ABORTED);
  ExpectDevicesFree(*workers_[0]);
  EXPECT_EQ(Profile(*workers_[0], CommRequest(), &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
  OpenAndConnect();
}

TEST_F(CommGroupServiceTest, APeerThatNeverJoinsAbortsWithinTheTimeout) {
  OpenAndConnect(/*timeout_ms=*/3000);  // connecting, too, has to end within it
  v1::ProfileCommResponse response;
  EXPECT_EQ(Profile(*workers_[0], CommRequest(), &response).error_code(),
            grpc::StatusCode::ABORTED);
  ExpectDevicesFree(*workers_[0]);
}

TEST_F(CommGroupServiceTest, ACancelledCallDoesNotWaitForAStalledPeersTimeout) {
  OpenAndConnect(/*timeout_ms=*/600'000);
  grpc::ClientContext context;
  auto call = std::async(std::launch::async, [&] {
    v1::ProfileCommResponse response;
    v1::ProfileCommRequest request = CommRequest();
    request.set_token(Token(*workers_[0]));
    return workers_[0]->stub().ProfileComm(&context, request, &response);
  });
  context.TryCancel();
  EXPECT_EQ(call.get().error_code(), grpc::StatusCode::CANCELLED);
  // The call may not have reached the worker; then the group is idle and closes as such.
  while (!workers_[0]->RunningJob(0).empty()) {
    workers_[0]->clock().Advance(kStopGrace);
    workers_[0]->groups().CutOffOverdueCalls();
    workers_[0]->groups().CloseIdle();
  }
  ExpectDevicesFree(*workers_[0]);
}

TEST_F(CommGroupServiceTest, WhoWatchesTheWorkerCannotUseOrCloseTheGroup) {
  OpenAndConnect();
  EXPECT_EQ(workers_[0]->RunningJob(0), "a comm group (rank 0 of 4)");
  for (const std::string& token : {std::string(), Token(*workers_[1])}) {
    EXPECT_EQ(Close(*workers_[0], token), grpc::StatusCode::PERMISSION_DENIED);
    grpc::ClientContext context;
    v1::ProfileCommRequest request = CommRequest();
    request.set_token(token);
    v1::ProfileCommResponse response;
    EXPECT_EQ(workers_[0]->stub().ProfileComm(&context, request, &response).error_code(),
              grpc::StatusCode::PERMISSION_DENIED);
  }
  EXPECT_NE(workers_[0]->RunningJob(0), "");
}

TEST_F(CommGroupServiceTest, AddressesOutsideOfTheNetworksAreNamedAndCostNothing) {
  grpc::ClientContext open_context, context;
  v1::OpenCommGroupRequest open = OpenRequest(0);
  open.set_world_size(3);
  v1::OpenCommGroupResponse opened;
  ASSERT_TRUE(workers_[0]->stub().OpenCommGroup(&open_context, open, &opened).ok());
  v1::ConnectCommGroupRequest request;
  request.set_group_id("g");
  request.set_token(opened.token());
  *request.mutable_addresses() = opened.addresses();
  v1::RankAddress& foreign = *request.add_addresses();
  foreign.set_rank(2);
  foreign.set_address("neuroshard-tcp/3 192.0.2.1:80 " + std::string(32, '0'));
  v1::ConnectCommGroupResponse response;
  const Status status =
      FromGrpc(workers_[0]->stub().ConnectCommGroup(&context, request, &response));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(FaultyFields(status), ::testing::ElementsAre("addresses[2].address"));
  EXPECT_THAT(Message(status),
              ::testing::AllOf(HasSubstr("192.0.2.1:80"), HasSubstr("127.0.0.0/8")));
  EXPECT_NE(workers_[0]->RunningJob(0), "") << "the group is still there";
}

TEST_F(CommGroupServiceTest, AnIdleGroupClosesItself) {
  OpenAndConnect();
  workers_[0]->clock().Advance(std::chrono::milliseconds(60'001));
  EXPECT_THAT(workers_[0]->groups().CloseIdle(), SizeIs(1));
  ExpectDevicesFree(*workers_[0]);
}

TEST_F(CommGroupServiceTest, OpenListsEveryFault) {
  v1::OpenCommGroupRequest request = OpenRequest(0);
  request.set_world_size(0);
  request.mutable_local_ranks(1)->set_device(9);
  grpc::ClientContext context;
  v1::OpenCommGroupResponse response;
  const grpc::Status status = workers_[0]->stub().OpenCommGroup(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("world_size"));
  EXPECT_THAT(status.error_message(), HasSubstr("local_ranks[1].device"));
}

}  // namespace
}  // namespace neuroshard
