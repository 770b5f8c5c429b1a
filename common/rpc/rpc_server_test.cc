// A real server on a real socket, with handlers that the test holds back.
#include "common/rpc/rpc_server.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "common/base/failure_reason.h"
#include "common/base/violations.h"
#include "common/rpc/call_budget.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/status_mapping.h"
#include "neuroshard/v1/planner.grpc.pb.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::IsOk;
using ::neuroshard::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kService[] = "neuroshard.v1.PlannerService";

// ListCostModels waits until it is released or told to stop; GetCostModel fails as told;
// EvaluatePlan throws.
class HeldService final : public v1::PlannerService::Service {
 public:
  explicit HeldService(RpcGate& gate) : gate_(gate) {}

  grpc::Status ListCostModels(grpc::ServerContext* context, const v1::ListCostModelsRequest*,
                              v1::ListCostModelsResponse* response) override {
    return gate_.Serve(*context, "ListCostModels", [&](RpcGate::Call&) -> Status {
      const CallStop stop(*context, gate_.draining(), clock_);
      std::unique_lock<std::mutex> lock(mutex_);
      ++running_;
      changed_.notify_all();
      while (!released_ && !stop.ShouldStop()) {
        changed_.wait_for(lock, std::chrono::milliseconds(1));
      }
      saw_deadline_ = stop.deadline_reached();
      saw_cancel_ = stop.cancelled();
      --running_;
      changed_.notify_all();
      response->add_refused()->set_reason(released_ ? "released" : "best so far");
      return absl::OkStatus();
    });
  }

  grpc::Status GetCostModel(grpc::ServerContext* context, const v1::GetCostModelRequest*,
                            v1::GetCostModelResponse*) override {
    return gate_.Serve(*context, "GetCostModel", [&](RpcGate::Call& call) {
      call.SetRequestId(own_request_id_);
      return failure_;
    });
  }

  grpc::Status EvaluatePlan(grpc::ServerContext* context, const v1::EvaluatePlanRequest*,
                            v1::EvaluatePlanResponse*) override {
    return gate_.Serve(*context, "EvaluatePlan", [](RpcGate::Call&) -> Status {
      throw std::runtime_error("out of its depth");
    });
  }

  void WaitUntilRunning(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return running_ == count; });
  }
  void Release() {
    const std::lock_guard<std::mutex> lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }
  bool saw_deadline() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return saw_deadline_;
  }
  bool saw_cancel() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return saw_cancel_;
  }

  Status failure_;
  std::string own_request_id_;

 private:
  RpcGate& gate_;
  SteadyClock clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int running_ = 0;
  bool released_ = false;
  bool saw_deadline_ = false;
  bool saw_cancel_ = false;
};

class RpcServerTest : public ::testing::Test {
 protected:
  RpcServerTest() : metrics_(registry_), gate_(2, clock_, metrics_, *logger_), service_(gate_) {}

  void Start(RpcServerOptions options = {}) {
    auto server = RpcServer::Start(options, {{kService, &service_}}, gate_);
    ASSERT_THAT(server, IsOk());
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
    stub_ = v1::PlannerService::NewStub(channel_);
  }

  grpc::Status GetCompressed() {
    grpc::ClientContext context;
    context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    v1::GetCostModelRequest request;
    request.mutable_cost_model()->set_name(std::string(10'000, 'x'));
    v1::GetCostModelResponse response;
    return stub_->GetCostModel(&context, request, &response);
  }

  StatusOr<std::string> List(std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + timeout);
    v1::ListCostModelsResponse response;
    const grpc::Status status = stub_->ListCostModels(&context, {}, &response);
    if (!status.ok()) return FromGrpc(status);
    return response.refused(0).reason();
  }

  std::future<StatusOr<std::string>> ListAsync() {
    return std::async(std::launch::async, [this] { return List(); });
  }

  // grpc.health.v1.Health/Check without its generated code: field 1 of both messages, a string and
  // an enum. 1 is SERVING, 2 is NOT_SERVING, 0 stands for an error.
  int Health(const std::string& service) {
    std::string request;
    if (!service.empty()) {
      request = std::string("\x0a") + static_cast<char>(service.size()) + service;
    }
    const std::string answer = CallRaw("/grpc.health.v1.Health/Check", request);
    return answer.size() == 2 && answer[0] == 0x08 ? answer[1] : 0;
  }

  std::string CallRaw(const std::string& method, const std::string& request) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    grpc::CompletionQueue queue;
    grpc::Slice slice(request);
    const auto call = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&slice, 1), &queue);
    call->StartCall();
    grpc::ByteBuffer response;
    grpc::Status status;
    call->Finish(&response, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    if (!status.ok()) return "";
    std::vector<grpc::Slice> slices;
    if (!response.Dump(&slices).ok()) return "";
    std::string bytes;
    for (const grpc::Slice& one : slices) {
      bytes.append(reinterpret_cast<const char*>(one.begin()), one.size());
    }
    return bytes;
  }

  SteadyClock clock_;
  prometheus::Registry registry_;
  RpcMetrics metrics_;
  std::ostringstream log_;
  std::unique_ptr<Logger> logger_ = Logger::ToStream(&log_);
  RpcGate gate_;
  HeldService service_;
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::PlannerService::Stub> stub_;
};

TEST_F(RpcServerTest, ReportsTheBoundPortAndItsHealth) {
  Start();
  EXPECT_NE(server_->port(), 0);
  EXPECT_EQ(server_->address(), "127.0.0.1:" + std::to_string(server_->port()));
  EXPECT_EQ(Health(""), 1);
  EXPECT_EQ(Health(kService), 1);
  EXPECT_EQ(Health("neuroshard.v1.NoSuchService"), 0);
}

TEST_F(RpcServerTest, TextsThatAreNotUtf8AreNotLoggedByProtobuf) {
  Start();
  ::testing::internal::CaptureStderr();
  v1::ShardPlanRequest request;
  EXPECT_FALSE(request.ParseFromString("\x0a\x03\x0a\x01\xff"));  // tables[0].name
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(RpcServerTest, AServiceThatIsNotReadyDoesNotMakeTheServerDead) {
  Start();
  server_->SetReady(kService, false);
  EXPECT_EQ(Health(kService), 2);
  EXPECT_EQ(Health(""), 1);
  server_->SetReady(kService, true);
  EXPECT_EQ(Health(kService), 1);
}

TEST_F(RpcServerTest, ReflectionListsTheServices) {
  Start();
  grpc::GenericStub stub(channel_);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  void* tag = nullptr;
  bool ok = false;
  call->StartCall(nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  grpc::Slice list_services(std::string("\x3a\x01*"));  // field 7, list_services: "*"
  call->WriteLast(grpc::ByteBuffer(&list_services, 1), grpc::WriteOptions(), nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  grpc::ByteBuffer response;
  call->Read(&response, nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  grpc::Slice slice;
  ASSERT_TRUE(response.TrySingleSlice(&slice).ok());
  EXPECT_THAT(std::string(slice.begin(), slice.end()), HasSubstr(kService));
  grpc::Status status;
  call->Finish(&status, nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok));
}

TEST_F(RpcServerTest, ASecondServerOnThePortIsRefused) {
  Start();
  RpcGate other_gate(1, clock_, metrics_, *logger_);
  HeldService other_service(other_gate);
  EXPECT_THAT(
      RpcServer::Start({.listen = server_->address()}, {{kService, &other_service}}, other_gate),
      StatusIs(absl::StatusCode::kUnavailable,
               AllOf(HasSubstr(server_->address()), HasSubstr("Address already in use"))));
  EXPECT_THAT(RpcServer::Start({.listen = "nonsense"}, {{kService, &other_service}}, other_gate),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("HOST:PORT")));
}

TEST_F(RpcServerTest, ListensOnASocketThatOnlyThisUserMayConnectTo) {
  const std::filesystem::path file =
      std::filesystem::path(::testing::TempDir()) / ("rpc_server_test." + std::to_string(getpid()));
  const mode_t usual = umask(0);
  Start({.listen = "unix:" + file.string()});
  umask(usual);
  EXPECT_EQ(server_->address(), "unix:" + file.string());
  EXPECT_EQ(Health(kService), 1);
  EXPECT_EQ(std::filesystem::status(file).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  RpcGate other_gate(1, clock_, metrics_, *logger_);
  HeldService other_service(other_gate);
  EXPECT_THAT(
      RpcServer::Start({.listen = server_->address()}, {{kService, &other_service}}, other_gate),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("Address already in use")));
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(RpcServerTest, CallsBeyondTheLimitAreRefusedAndTheOthersFinish) {
  Start();
  auto first = ListAsync();
  auto second = ListAsync();
  service_.WaitUntilRunning(2);
  EXPECT_THAT(List(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("2 calls")));
  EXPECT_EQ(ReasonOf(List().status()), FailureReason::kOverloaded);
  service_.Release();
  EXPECT_EQ(*first.get(), "released");
  EXPECT_EQ(*second.get(), "released");
  EXPECT_THAT(List(), IsOk());
  EXPECT_EQ(gate_.in_flight(), 0);
  // The two that were refused at once are no sign of a fast server.
  EXPECT_THAT(prometheus::TextSerializer().Serialize(registry_.Collect()),
              AllOf(HasSubstr("neuroshard_rpc_duration_seconds_count{rpc=\"ListCostModels\"} 3\n"),
                    HasSubstr("neuroshard_rpc_shed_total{reason=\"OVERLOADED\","
                              "rpc=\"ListCostModels\"} 2\n")));
}

TEST_F(RpcServerTest, IdleConnectionsAreClosed) {
  Start({.max_connection_idle_ms = 100});
  EXPECT_EQ(Health(""), 1);
  const auto limit = std::chrono::system_clock::now() + std::chrono::seconds(60);
  EXPECT_TRUE(channel_->WaitForStateChange(GRPC_CHANNEL_READY, limit));
  EXPECT_EQ(Health(""), 1) << "and opened again";
}

TEST_F(RpcServerTest, MessagesBeyondTheLimitAreRefused) {
  Start({.max_message_bytes = 1024});
  grpc::ClientContext context;
  v1::GetCostModelRequest request;
  request.mutable_cost_model()->set_name(std::string(2000, 'x'));
  v1::GetCostModelResponse response;
  EXPECT_THAT(FromGrpc(stub_->GetCostModel(&context, request, &response)),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("1024")));
}

TEST_F(RpcServerTest, AHundredLongViolationsArriveAtADefaultClient) {
  Violations violations;
  for (int i = 0; i < 100; ++i) {
    violations.Add(fmt::format("tables[{}].reuse_histogram", i),
                   "must be 17 fractions that sum to 1, got " + std::string(500, '%'));
  }
  service_.failure_ = violations.ToStatus();
  Start();
  grpc::ClientContext context;
  v1::GetCostModelResponse response;
  const Status status = FromGrpc(stub_->GetCostModel(&context, {}, &response));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("tables[0].reuse_histogram: must be 17 fractions")));
  const auto arrived = Violations::FromStatus(status);
  ASSERT_GT(arrived.size(), 5u);
  EXPECT_EQ(arrived[1].field, "tables[1].reuse_histogram");
  EXPECT_THAT(arrived.back().description, HasSubstr("more"));
}

TEST_F(RpcServerTest, AnEscapedExceptionIsAnInternalErrorAndTheServerServesOn) {
  Start();
  grpc::ClientContext context;
  v1::EvaluatePlanResponse response;
  EXPECT_THAT(FromGrpc(stub_->EvaluatePlan(&context, {}, &response)),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("out of its depth")));
  service_.Release();
  EXPECT_THAT(List(), IsOk());
}

TEST_F(RpcServerTest, ADeadlineCutsTheWorkAndNotTheAnswer) {
  Start();
  // The margin is a tenth of it, for which a loaded machine may stop this process: then once more.
  StatusOr<std::string> answer = List(std::chrono::milliseconds(2000));
  for (int i = 0; i < 5 && absl::IsDeadlineExceeded(answer.status()); ++i) {
    answer = List(std::chrono::milliseconds(2000));
  }
  ASSERT_THAT(answer, IsOk());
  EXPECT_EQ(*answer, "best so far");
  EXPECT_TRUE(service_.saw_deadline());
}

TEST_F(RpcServerTest, ACancelledCallStops) {
  Start();
  grpc::ClientContext context;
  auto call = std::async(std::launch::async, [&] {
    v1::ListCostModelsResponse response;
    return stub_->ListCostModels(&context, {}, &response).error_code();
  });
  service_.WaitUntilRunning(1);
  context.TryCancel();
  EXPECT_EQ(call.get(), grpc::StatusCode::CANCELLED);
  service_.WaitUntilRunning(0);
  EXPECT_TRUE(service_.saw_cancel());
}

TEST_F(RpcServerTest, ADrainAnswersRunningCallsWithTheirBestSoFar) {
  Start({.drain_grace_ms = 60'000});
  auto first = ListAsync();
  auto second = ListAsync();
  service_.WaitUntilRunning(2);
  std::thread waiter([this] { server_->Wait(); });
  server_->RequestDrain();
  server_->RequestDrain();
  EXPECT_EQ(*first.get(), "best so far");
  EXPECT_EQ(*second.get(), "best so far");
  waiter.join();
  EXPECT_THAT(List(), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(RpcServerTest, DuringTheNoticeHealthIsNotServingAndCallsStillSucceed) {
  service_.Release();
  // Ended below by the drain's own course; long enough that the checks always fall into it.
  Start({.drain_notice_ms = 5000, .drain_grace_ms = 60'000});
  ASSERT_THAT(List(), IsOk());
  server_->RequestDrain();
  std::thread waiter([this] { server_->Wait(); });
  while (Health("") == 1) std::this_thread::yield();
  EXPECT_EQ(Health(kService), 2);
  server_->SetReady(kService, true);
  EXPECT_EQ(Health(kService), 2) << "a drain is final";
  EXPECT_THAT(List(), IsOk());
  waiter.join();
}

TEST_F(RpcServerTest, ADrainingGateRefusesWithUnavailable) {
  Start();
  gate_.StopAdmitting();
  EXPECT_THAT(List(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("draining")));
  EXPECT_EQ(ReasonOf(List().status()), FailureReason::kDraining);
}

TEST(RpcServerOptionsTest, AreReadAndBounded) {
  NS_ASSERT_OK_AND_ASSIGN(
      ConfigReader reader,
      ConfigReader::FromText("listen: '[::1]:7'\n"
                             "rpc: {max_in_flight: 3, max_message_bytes: 1, drain_notice_ms: 5}",
                             "f"));
  RpcServerOptions options;
  ReadRpcServerOptions(reader, &options);
  EXPECT_THAT(reader.Finish(), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("rpc.max_message_bytes: must be in [1024")));
  EXPECT_EQ(options.listen, "[::1]:7");
  EXPECT_EQ(options.max_in_flight, 3);
  EXPECT_EQ(options.drain_notice_ms, 5);
}

TEST_F(RpcServerTest, CompressedRequestsAreRefused) {
  Start();
  EXPECT_EQ(GetCompressed().error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(RpcServerTest, CompressedRequestsAreTakenWhereTheOperatorSaysSo) {
  Start({.accept_compressed = true});
  EXPECT_TRUE(GetCompressed().ok());
}

TEST_F(RpcServerTest, CheapCallsAreAnsweredWhenTheServerIsFull) {
  RpcGate full(1, clock_, metrics_, *logger_);
  grpc::ServerContext context;
  RpcGate::Call one(full, context, "Search", RpcGate::Kind::kCounted);
  RpcGate::Call two(full, context, "Search", RpcGate::Kind::kCounted);
  EXPECT_THAT(one.admission(), IsOk());
  EXPECT_THAT(two.admission(), StatusIs(absl::StatusCode::kResourceExhausted));
  const auto ok = [](RpcGate::Call&) { return absl::OkStatus(); };
  EXPECT_TRUE(full.Serve(context, "Health", ok, RpcGate::Kind::kCheap).ok());
  std::ignore = two.End(two.admission());
  EXPECT_EQ(full.Serve(context, "Search", ok).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  std::ignore = one.End(absl::OkStatus());
  EXPECT_TRUE(full.Serve(context, "Search", ok).ok());
  EXPECT_EQ(full.in_flight(), 0);
}

TEST_F(RpcServerTest, CallsThatAFullServerRefusesAreToldToComeBackOneAfterTheOther) {
  testing::FakeClock clock;
  RpcGate full(1, clock, metrics_, *logger_);
  grpc::ServerContext context;
  const auto advice = [&] {
    RpcGate::Call call(full, context, "Search", RpcGate::Kind::kCounted);
    std::ignore = call.End(call.admission());
    return RetryAfterOf(call.admission());
  };
  RpcGate::Call running(full, context, "Search", RpcGate::Kind::kCounted);
  EXPECT_EQ(advice(), std::chrono::milliseconds(250));
  EXPECT_EQ(advice(), std::chrono::milliseconds(270));
  // Refused calls that end are none of those that make room.
  for (int i = 0; i < 50; ++i) EXPECT_LE(advice(), std::chrono::milliseconds(270 + 50 * 20));
  CallBudget budget(1, "threads", "x", full.retry_pacer());
  const auto taken = budget.Take(1);
  EXPECT_EQ(RetryAfterOf(budget.Take(1).status()), std::chrono::milliseconds(270 + 51 * 20))
      << "one order for all that refuse";
  std::ignore = running.End(absl::OkStatus());
}

// The id in an answer, "" where there is none.
std::string AnsweredId(const grpc::ClientContext& context) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find(kRequestIdKey);
  return found == trailers.end() ? "" : std::string(found->second.data(), found->second.size());
}

TEST_F(RpcServerTest, EveryAnswerNamesItsRequest) {
  Start();
  const auto get = [&](const std::string& request_id) {
    grpc::ClientContext context;
    if (!request_id.empty()) context.AddMetadata(kRequestIdKey, request_id);
    v1::GetCostModelResponse response;
    std::ignore = stub_->GetCostModel(&context, {}, &response);
    return AnsweredId(context);
  };
  for (const Status& failure : {absl::OkStatus(), NotFound("none"), Internal("ours")}) {
    service_.failure_ = failure;
    EXPECT_EQ(get("from/the:caller"), "from/the:caller");
    EXPECT_THAT(get(""), ::testing::MatchesRegex("[0-9a-f]+"));
    EXPECT_THAT(get("with a space"), ::testing::MatchesRegex("[0-9a-f]+"));
    EXPECT_THAT(get(std::string(1000, 'x')), ::testing::MatchesRegex("[0-9a-f]+"));
  }
  service_.own_request_id_ = "of the request";  // which no header can carry
  EXPECT_EQ(get("from/the:caller"), "of%20the%20request");
  service_.own_request_id_ = "of-the-request";
  EXPECT_EQ(get("from/the:caller"), "of-the-request");
  gate_.StopAdmitting();
  service_.own_request_id_ = "";
  EXPECT_EQ(get("shed"), "shed");
}

TEST_F(RpcServerTest, AFailureIsLoggedOnceWithItsIds) {
  Start();
  service_.failure_ = NotFound("none");
  grpc::ClientContext context;
  context.AddMetadata(kRequestIdKey, "r-1");
  context.AddMetadata(kTraceparentKey, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  v1::GetCostModelResponse response;
  EXPECT_FALSE(stub_->GetCostModel(&context, {}, &response).ok());
  server_.reset();
  EXPECT_THAT(
      log_.str(),
      ::testing::MatchesRegex(
          "[^\n]* info call_failed request_id=r-1 trace_id=0af7651916cd43dd8448eb211c80319c "
          "caller=127.0.0.1 peer=ipv4:127.0.0.1:[0-9]+ rpc=GetCostModel duration_ms=[^ ]+ "
          "code=NOT_FOUND message=none\n"));
}

TEST_F(RpcServerTest, RequestsThatGrpcCannotDecodeAreCountedAndAnsweredWithAnId) {
  Start();
  grpc::GenericStub stub(channel_);
  grpc::ClientContext context;
  context.AddMetadata(kRequestIdKey, "r-1");
  grpc::CompletionQueue queue;
  grpc::Slice slice("\xff\xff");
  const auto call = stub.PrepareUnaryCall(&context, "/neuroshard.v1.PlannerService/GetCostModel",
                                          grpc::ByteBuffer(&slice, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(AnsweredId(context), "r-1");
  EXPECT_THAT(prometheus::TextSerializer().Serialize(registry_.Collect()),
              HasSubstr("neuroshard_rpc_requests_total{code=\"INTERNAL\",rpc=\"GetCostModel\"} 1"));
  server_.reset();
  EXPECT_THAT(log_.str(), HasSubstr("call_refused request_id=r-1 "));
}

TEST(RpcGateTest, AFloodOfFailuresIsLoggedInPart) {
  testing::FakeClock clock;
  std::ostringstream log;
  const auto logger = Logger::ToStream(&log);
  prometheus::Registry registry;
  RpcMetrics metrics(registry);
  RpcGate gate(1, clock, metrics, *logger);
  const auto lines = [&log] {
    const std::string text = log.str();
    log.str("");
    return std::count(text.begin(), text.end(), '\n');
  };
  const auto fail = [&] {
    grpc::ServerContext context;
    std::ignore = gate.Serve(context, "Plan", [](RpcGate::Call&) { return NotFound("none"); });
  };
  for (int i = 0; i < 350; ++i) fail();
  EXPECT_EQ(lines(), 100);
  clock.Advance(std::chrono::seconds(1));
  fail();
  EXPECT_THAT(log.str(), HasSubstr(" not_logged=250 "));
  EXPECT_EQ(lines(), 1);
  fail();
  EXPECT_THAT(log.str(), ::testing::Not(HasSubstr("not_logged")));
}

TEST_F(RpcServerTest, UnknownCallsAreCountedAndAnsweredWithAnId) {
  Start();
  grpc::GenericStub stub(channel_);
  for (const char* method : {"/neuroshard.v1.PlannerService/Nothing", "/x.Y/ListCostModels"}) {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    grpc::Slice slice("");
    const auto call = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&slice, 1), &queue);
    call->StartCall();
    grpc::ByteBuffer response;
    grpc::Status status;
    call->Finish(&response, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
    EXPECT_EQ(status.error_message(), "");
    EXPECT_THAT(AnsweredId(context), ::testing::SizeIs(16));
  }
  EXPECT_THAT(prometheus::TextSerializer().Serialize(registry_.Collect()),
              HasSubstr("neuroshard_rpc_requests_total{code=\"UNIMPLEMENTED\",rpc=\"other\"} 2"));
  server_.reset();
  EXPECT_THAT(log_.str(), HasSubstr("path=/x.Y/ListCostModels code=UNIMPLEMENTED"));
}

}  // namespace
}  // namespace neuroshard
