// The service behind a real server on a real socket, with the fake cost model and the real search.
#include "server/service/planner_service.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <semaphore>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "common/base/failure_reason.h"
#include "common/base/violations.h"
#include "common/devices/device_table.h"
#include "common/rpc/rpc_server.h"
#include "common/rpc/status_mapping.h"
#include "server/networks/testing/model_fixture.h"
#include "server/search/run_search.h"
#include "tests/support/fake_cost_model.h"
#include "tests/support/faulty_fields.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::FakeCostModel;
using ::neuroshard::testing::IsOk;
using ::neuroshard::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class PlannerServiceTest : public ::testing::Test {
 protected:
  PlannerServiceTest() {
    std::filesystem::create_directories(root_);
    for (const int version : {1, 2, 13}) {
      EXPECT_THAT(WriteModelFixture(root_, {.version = version}), IsOk());
    }
    auto repository = ModelRepository::Create({root_, "", {}}, LoadFake);
    EXPECT_THAT(repository, IsOk());
    models_ = *std::move(repository);
    planner_ = std::make_unique<Planner>(
        [this](const PlanRequest& request) { return models_->Current()->FindFor(request); },
        [this](const PlanRequest& request, const BoundCostModel& model, const StopSignal& stop,
               SearchObserver* observer) {
          SearchFunction search;
          {
            const std::lock_guard lock(search_mutex_);
            search = search_;
          }
          return search(request, model, stop, observer);
        },
        clock_);
    service_ = std::make_unique<PlannerServiceImpl>(PlannerServiceParts{
        *planner_, *models_, gate_, clock_, *logger_, metrics_,
        RequestLimits{.max_tables = 100, .max_devices = 64}, std::chrono::minutes(5),
        PlannerServiceLimits{.write_timeout = std::chrono::seconds(2)},
        [this](const std::string& name, int version, std::optional<double> share) {
          return models_->Serve(name, version, share);
        }});
    auto server = RpcServer::Start({}, {{"neuroshard.v1.PlannerService", service_.get()}}, gate_);
    EXPECT_THAT(server, IsOk());
    server_ = *std::move(server);
    stub_ = v1::PlannerService::NewStub(
        grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
  }
  ~PlannerServiceTest() override {
    server_.reset();
    std::filesystem::remove_all(root_);
  }

  static StatusOr<std::shared_ptr<const CostModel>> LoadFake(const ModelManifest& manifest,
                                                             const std::filesystem::path&) {
    if (manifest.version == 13) return InvalidArgument("unlucky");
    CostModelInfo info;
    info.name = manifest.name;
    info.version = manifest.version;
    info.kind = "fake";
    info.measured_with = {manifest.device, manifest.backend, manifest.collective_backend};
    info.coverage.global_batch_size = 65536;
    info.digest = manifest.digest;
    info.details["metrics.compute.kendall_tau"] = "1";
    if (manifest.version == 1) {
      info.details["metrics.forward_comm.mape_percent"] = "141";
      info.details["metrics.forward_comm.samples"] = "30";
      info.drift = {{"compute", 40, 2.5, 2.4, 2.6, "", "2026-11-21"}};
    }
    return std::make_shared<const FakeCostModel>(info);
  }

  static v1::ShardPlanRequest Request(int tables = 5) {
    v1::ShardPlanRequest request;
    for (int i = 0; i < tables; ++i) {
      v1::Table& table = *request.add_tables();
      table.set_name("t" + std::to_string(i));
      table.set_num_embeddings(1000 * (i + 1));
      table.set_embedding_dim(i % 2 == 0 ? 16 : 64);
      table.set_pooling_factor(1.0 + i);
      table.set_zipf_exponent(1.0);
    }
    request.mutable_topology()->set_compute_device("cpu");  // what the fixture was measured on
    v1::HostGroup& host = *request.mutable_topology()->add_hosts();
    host.set_num_devices(2);
    host.set_memory_bytes(std::int64_t{1} << 33);
    request.mutable_search()->set_effort("quick");
    return request;
  }

  void SearchWith(SearchFunction search) {
    const std::lock_guard lock(search_mutex_);
    search_ = std::move(search);
  }

  StatusOr<v1::ShardPlanResponse> ShardPlan(const v1::ShardPlanRequest& request) {
    grpc::ClientContext context;
    v1::ShardPlanResponse response;
    NS_RETURN_IF_ERROR(FromGrpc(stub_->ShardPlan(&context, request, &response)));
    return response;
  }

  StatusOr<v1::EvaluatePlanResponse> Evaluate(const v1::ShardPlanRequest& request,
                                              const v1::Plan& plan) {
    v1::EvaluatePlanRequest message;
    *message.mutable_request() = request;
    *message.mutable_plan() = plan;
    grpc::ClientContext context;
    v1::EvaluatePlanResponse response;
    NS_RETURN_IF_ERROR(FromGrpc(stub_->EvaluatePlan(&context, message, &response)));
    return response;
  }

  const std::filesystem::path root_ =
      std::filesystem::path(::testing::TempDir()) /
      ("planner_service_" + std::to_string(getpid()) + "_" +
       ::testing::UnitTest::GetInstance()->current_test_info()->name());
  SteadyClock clock_;
  // The lock is for ThreadSanitizer, which does not see that a call through gRPC comes after what
  // was written before it.
  std::mutex search_mutex_;
  SearchFunction search_ = RunSearch;
  prometheus::Registry registry_;
  PlannerMetrics metrics_{registry_};
  std::ostringstream log_;
  std::unique_ptr<Logger> logger_ = Logger::ToStream(&log_);
  RpcMetrics rpc_metrics_{registry_};
  std::unique_ptr<Logger> log_of_calls_ = *Logger::Create({.level = "off"});
  RpcGate gate_{16, clock_, rpc_metrics_, *log_of_calls_};
  std::unique_ptr<ModelRepository> models_;
  std::unique_ptr<Planner> planner_;
  std::unique_ptr<PlannerServiceImpl> service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::PlannerService::Stub> stub_;
};

TEST_F(PlannerServiceTest, APlanComesWithItsModelSeedAndFingerprint) {
  v1::ShardPlanRequest request = Request();
  request.set_request_id("r-1");
  request.mutable_search()->set_seed(42);
  request.mutable_search()->set_refine_steps(50);  // a budget of time would end it anywhere
  NS_ASSERT_OK_AND_ASSIGN(const v1::ShardPlanResponse response, ShardPlan(request));
  EXPECT_EQ(response.plan().tables_size(), 5);
  EXPECT_EQ(response.cost().ranks_size(), 2);
  EXPECT_EQ(response.cost_model().name(), "fixture");
  EXPECT_EQ(response.cost_model().version(), 2);
  EXPECT_EQ(response.cost().measured_with().backend(), "neuroshard-cpu");
  EXPECT_EQ(response.cost().measured_with().collective_backend(), "neuroshard-tcp");
  EXPECT_EQ(response.seed(), 42u);
  EXPECT_EQ(response.request_id(), "r-1");
  EXPECT_THAT(response.request_fingerprint(), SizeIs(64));
  EXPECT_GE(response.search().search_ms(), 0);
  EXPECT_FALSE(response.search().time_limit_reached());

  NS_ASSERT_OK_AND_ASSIGN(const v1::ShardPlanResponse again, ShardPlan(request));
  EXPECT_EQ(again.plan().SerializeAsString(), response.plan().SerializeAsString());
  NS_ASSERT_OK_AND_ASSIGN(const v1::EvaluatePlanResponse evaluation,
                          Evaluate(request, response.plan()));
  EXPECT_TRUE(evaluation.legal());
  EXPECT_DOUBLE_EQ(evaluation.cost().embedding_cost_ms(), response.cost().embedding_cost_ms());
  EXPECT_EQ(response.global_batch_size(), 65536);  // the default
  EXPECT_EQ(evaluation.global_batch_size(), 65536);
}

TEST_F(PlannerServiceTest, TheStatusHasModelsLimitsAndTheLatestPlans) {
  v1::ShardPlanRequest request = Request();
  for (int i = 0; i < 25; ++i) {
    request.set_request_id(std::to_string(i));
    request.mutable_tables(0)->set_embedding_dim(i == 23 ? -1 : 16);
    EXPECT_EQ(ShardPlan(request).ok(), i != 23);
  }
  const v1::PlannerStatus status = service_->CurrentStatus();
  EXPECT_FALSE(status.draining());
  EXPECT_EQ(status.cost_models().models_size(), 2);
  EXPECT_EQ(status.cost_models().refused_size(), 1);
  ASSERT_EQ(status.limits_size(), 3);
  EXPECT_EQ(status.limits(0).option(), "rpc.max_in_flight");
  EXPECT_EQ(status.limits(0).limit(), 16);
  EXPECT_EQ(status.limits(1).limit(), DefaultSearchThreadsInFlight());
  ASSERT_EQ(status.recent_plans_size(), 20);
  EXPECT_EQ(status.recent_plans(0).request_id(), "24");
  EXPECT_EQ(status.recent_plans(0).status(), "OK");
  EXPECT_EQ(status.recent_plans(0).model(), "fixture/2");
  EXPECT_EQ(status.recent_plans(0).tables(), 5);
  EXPECT_EQ(status.recent_plans(0).ranks(), 2);
  EXPECT_GT(status.recent_plans(0).cost_ms(), 0);
  EXPECT_THAT(status.recent_plans(1).status(),
              AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("got -1")));
  EXPECT_EQ(status.recent_plans(1).ranks(), 0);
  EXPECT_EQ(status.recent_plans(19).request_id(), "5");
}

TEST_F(PlannerServiceTest, ARequestWithoutAnIdGetsOneAndItIsInTheLog) {
  NS_ASSERT_OK_AND_ASSIGN(const v1::ShardPlanResponse response, ShardPlan(Request()));
  EXPECT_THAT(response.request_id(), SizeIs(16));
  server_.reset();
  EXPECT_THAT(log_.str(),
              AllOf(HasSubstr("plan_made"), HasSubstr("request_id=" + response.request_id())));
}

TEST_F(PlannerServiceTest, EveryFaultOfARequestIsReportedAtOnce) {
  v1::ShardPlanRequest request = Request();
  request.mutable_tables(1)->set_embedding_dim(-4);
  request.mutable_tables(3)->set_name("t0");
  request.mutable_search()->set_strategy("best");
  const auto response = ShardPlan(request);
  ASSERT_THAT(response, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("got -4")));
  const std::vector<std::string> fields = FaultyFields(response.status());
  EXPECT_THAT(fields, AllOf(Contains("tables[1].embedding_dim"), Contains("tables[3].name"),
                            Contains("search.strategy")));
  EXPECT_THAT(ShardPlan(Request()), IsOk());
}

TEST_F(PlannerServiceTest, LimitsAreQuoted) {
  EXPECT_THAT(ShardPlan(Request(101)),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("100")));
  v1::ShardPlanRequest request = Request(101);
  request.mutable_search()->set_strategy("best");
  EXPECT_THAT(ShardPlan(request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("has 101 tables"), HasSubstr("search.strategy"))));
}

TEST_F(PlannerServiceTest, HugeRequestsAreRefusedBeforeTheyAreParsed) {
  v1::ShardPlanRequest request;
  for (int i = 0; i < 1'000'000; ++i) request.add_tables();
  EXPECT_THAT(ShardPlan(request), StatusIs(absl::StatusCode::kResourceExhausted,
                                           AllOf(HasSubstr("tables"), HasSubstr("more than 200"),
                                                 HasSubstr("limits.max_tables"))));
  request = Request();
  for (int i = 0; i < 4'000'000; ++i) request.mutable_constraints()->add_tables();
  EXPECT_THAT(ShardPlan(request), StatusIs(absl::StatusCode::kResourceExhausted,
                                           HasSubstr("limits.max_request_values")));
  v1::EvaluatePlanRequest evaluate;
  for (int i = 0; i < 1'000; ++i) evaluate.mutable_request()->add_tables();
  grpc::ClientContext context;
  v1::EvaluatePlanResponse response;
  const Status status = FromGrpc(stub_->EvaluatePlan(&context, evaluate, &response));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(FaultyFields(status), ::testing::ElementsAre("request.tables"));
}

// Searches that wait until they are told to go on.
class HeldSearches {
 public:
  SearchFunction Function() {
    return [this](const PlanRequest& request, const BoundCostModel& model, const StopSignal& stop,
                  SearchObserver* observer) -> StatusOr<SearchResult> {
      ++running_;
      while (!released_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      auto result = RunSearch(request, model, stop, observer);
      ++ended_;
      return result;
    };
  }
  // What a search did happens before this object goes, which TSan cannot see inside libgrpc.
  ~HeldSearches() {
    while (ended_ < running_) std::this_thread::yield();
  }
  void WaitUntilRunning(int count) const {
    while (running_ < count) std::this_thread::yield();
  }
  void Release() { released_ = true; }

 private:
  std::atomic<int> running_{0};
  std::atomic<int> ended_{0};
  std::atomic<bool> released_{false};
};

TEST_F(PlannerServiceTest, AServerThatIsFullStillAnswersCheapCallsAndSaysWhenToTryAgain) {
  HeldSearches searches;
  SearchWith(searches.Function());
  std::vector<std::jthread> calls;
  for (int i = 0; i < 16; ++i) {
    calls.emplace_back([this] { EXPECT_THAT(ShardPlan(Request()), IsOk()); });
  }
  searches.WaitUntilRunning(16);
  grpc::ClientContext refused_context, list_context, get_context;
  v1::ShardPlanResponse refused_response;
  const grpc::Status refused = stub_->ShardPlan(&refused_context, Request(), &refused_response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_details(), HasSubstr("google.rpc.RetryInfo"));
  v1::ListCostModelsResponse models;
  EXPECT_TRUE(stub_->ListCostModels(&list_context, {}, &models).ok());
  v1::GetCostModelResponse model;
  EXPECT_TRUE(stub_->GetCostModel(&get_context, {}, &model).ok());
  searches.Release();
}

TEST_F(PlannerServiceTest, ThreadsOfSearchesAreCountedAgainstCores) {
  HeldSearches searches;
  SearchWith(searches.Function());
  v1::ShardPlanRequest greedy = Request();
  greedy.mutable_search()->set_max_threads(DefaultSearchThreadsInFlight());
  std::jthread first([&] { EXPECT_THAT(ShardPlan(greedy), IsOk()); });
  searches.WaitUntilRunning(1);
  EXPECT_THAT(ShardPlan(Request()), StatusIs(absl::StatusCode::kResourceExhausted,
                                             AllOf(HasSubstr("threads of searches"),
                                                   HasSubstr("rpc.max_search_threads_in_flight"))));
  v1::ShardPlanRequest faulty;
  EXPECT_THAT(ShardPlan(faulty), StatusIs(absl::StatusCode::kResourceExhausted))
      << "refused before it is looked at";
  searches.Release();
  first.join();
  EXPECT_THAT(ShardPlan(Request()), IsOk());
  EXPECT_THAT(ShardPlan(faulty), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(PlannerServiceTest, SearchesYieldToTheThreadsThatAnswerCheapCalls) {
  std::atomic<int> niceness = 0;
  SearchWith([&](const PlanRequest& request, const BoundCostModel& model, const StopSignal& stop,
                 SearchObserver* observer) {
    niceness = getpriority(PRIO_PROCESS, 0);
    return RunSearch(request, model, stop, observer);
  });
  EXPECT_THAT(ShardPlan(Request()), IsOk());
  EXPECT_EQ(niceness, std::min(19, getpriority(PRIO_PROCESS, getpid()) + 10));
}

TEST_F(PlannerServiceTest, ACallerThatDoesNotReadItsStreamLosesItsCall) {
  SearchWith([&](const PlanRequest& request, const BoundCostModel& model, const StopSignal& stop,
                 SearchObserver* observer) -> StatusOr<SearchResult> {
    NS_ASSIGN_OR_RETURN(SearchResult result, RunSearch(request, model, NeverStop(), nullptr));
    while (!stop.ShouldStop()) observer->OnImprovement(result);
    result.statistics.time_limit_reached = true;
    return result;
  });
  grpc::ClientContext context;
  const auto reader = stub_->ShardPlanStream(&context, Request(100));
  while (gate_.in_flight() == 0) std::this_thread::yield();
  // Nothing but the write timeout ends it.
  const TimePoint give_up = clock_.Now() + std::chrono::seconds(60);
  while (gate_.in_flight() > 0 && clock_.Now() < give_up) std::this_thread::yield();
  EXPECT_EQ(gate_.in_flight(), 0);
  for (v1::ShardPlanUpdate update; reader->Read(&update);) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  SearchWith(RunSearch);
  EXPECT_THAT(ShardPlan(Request()), IsOk());
}

TEST_F(PlannerServiceTest, AnUnknownModelIsNamedBesideThoseThereAre) {
  v1::ShardPlanRequest request = Request();
  request.mutable_cost_model()->set_name("h900");
  EXPECT_THAT(ShardPlan(request), StatusIs(absl::StatusCode::kFailedPrecondition,
                                           AllOf(HasSubstr("h900"), HasSubstr("fixture"))));
}

TEST_F(PlannerServiceTest, FailuresHaveReasonsForPrograms) {
  const auto reason = [&](const std::function<void(v1::ShardPlanRequest&)>& change) {
    v1::ShardPlanRequest request = Request();
    change(request);
    const Status status = ShardPlan(request).status();
    EXPECT_FALSE(status.ok());
    return ReasonOf(status);
  };
  EXPECT_EQ(reason([](auto& r) { r.mutable_tables(1)->set_embedding_dim(-4); }),
            FailureReason::kBadInput);
  EXPECT_EQ(reason([](auto& r) { r = Request(101); }), FailureReason::kOverLimit);
  EXPECT_EQ(reason([](auto& r) { r.mutable_cost_model()->set_name("h900"); }),
            FailureReason::kNoModel);
  const auto shrink = [](v1::ShardPlanRequest& r) {
    r.mutable_memory()->set_rule("weights_only");
    r.mutable_topology()->mutable_hosts(0)->set_memory_bytes(1 << 10);
  };
  EXPECT_EQ(reason(shrink), FailureReason::kOutOfMemory);
  EXPECT_EQ(reason([&](auto& r) {
              shrink(r);
              r.mutable_search()->set_strategy("neuroshard");
            }),
            FailureReason::kOutOfMemory);
  // One table that has to be cut, which this strategy does not do of unpooled ones.
  EXPECT_EQ(reason([](auto& r) {
              r = Request(1);
              r.mutable_tables(0)->set_kind("embedding");
              r.mutable_memory()->set_rule("weights_only");
              r.mutable_topology()->mutable_hosts(0)->set_memory_bytes(40'000);
              r.mutable_search()->set_strategy("size_greedy");
            }),
            FailureReason::kNoPlanFound);
  EXPECT_EQ(reason([](auto& r) {
              v1::TableRule& rule = *r.mutable_constraints()->add_tables();
              rule.add_tables("t1");
              rule.add_ranks(0);
              rule.add_forbidden_ranks(0);
            }),
            FailureReason::kConstraintsConflict);
}

TEST_F(PlannerServiceTest, UnpooledTablesGetTypesThatTorchRecRunsAndAreToldInThePlan) {
  v1::ShardPlanRequest request = Request();
  for (const int table : {1, 3}) {
    request.mutable_tables(table)->set_kind("embedding");
    request.mutable_tables(table)->set_name("sequence");
    request.mutable_tables(table)->set_module(table == 1 ? "user" : "item");
  }
  request.mutable_constraints()->add_sharding_types("column_wise");
  request.mutable_constraints()->add_sharding_types("grid_shard");
  request.mutable_constraints()->set_min_column_width(16);
  const auto response = ShardPlan(request);
  ASSERT_THAT(response, IsOk());
  for (int t = 0; t < 5; ++t) {
    const v1::TablePlan& table = response->plan().tables(t);
    EXPECT_EQ(table.has_kind(), t == 1 || t == 3);
    if (!table.has_kind()) continue;
    EXPECT_EQ(table.kind(), "embedding");
    EXPECT_EQ(table.sharding_type(), "column_wise");
    EXPECT_EQ(table.name(), "sequence");
    for (const v1::Shard& shard : table.shards()) EXPECT_EQ(shard.cols(), 16);
  }

  v1::Plan plan = response->plan();
  EXPECT_TRUE(Evaluate(request, plan)->legal());
  plan.mutable_tables(3)->set_kind("embedding_bag");
  const auto evaluation = Evaluate(request, plan);
  ASSERT_EQ(evaluation->violations_size(), 1);
  EXPECT_EQ(evaluation->violations(0).field(), "plan.tables[3].kind");

  request.mutable_constraints()->mutable_sharding_types()->DeleteSubrange(0, 1);
  EXPECT_EQ(ReasonOf(ShardPlan(request).status()), FailureReason::kConstraintsConflict);
  request.clear_constraints();
  request.mutable_search()->set_strategy("neuroshard");
  EXPECT_EQ(FaultyFields(ShardPlan(request).status()), std::vector<std::string>{"search.strategy"});
}

TEST_F(PlannerServiceTest, AStreamEndsWithThePlanThatTheUnaryCallGives) {
  v1::ShardPlanRequest request = Request();
  request.mutable_search()->set_refine_steps(50);
  grpc::ClientContext context;
  const auto reader = stub_->ShardPlanStream(&context, request);
  std::vector<v1::ShardPlanUpdate> updates;
  for (v1::ShardPlanUpdate update; reader->Read(&update);) updates.push_back(update);
  ASSERT_THAT(FromGrpc(reader->Finish()), IsOk());

  ASSERT_FALSE(updates.empty());
  double best_ms = 0;
  double progress = 0;
  for (std::size_t i = 0; i < updates.size(); ++i) {
    EXPECT_EQ(updates[i].final(), i + 1 == updates.size());
    EXPECT_GE(updates[i].progress(), progress);
    progress = updates[i].progress();
    if (!updates[i].has_best()) continue;
    EXPECT_EQ(updates[i].best_cost_ms(), updates[i].best().cost().embedding_cost_ms());
    if (best_ms > 0) {
      EXPECT_LE(updates[i].best_cost_ms(), best_ms);
    }
    best_ms = updates[i].best_cost_ms();
  }
  NS_ASSERT_OK_AND_ASSIGN(const v1::ShardPlanResponse unary, ShardPlan(request));
  EXPECT_EQ(updates.back().best().plan().SerializeAsString(), unary.plan().SerializeAsString());
  EXPECT_EQ(updates.back().best().request_fingerprint(), unary.request_fingerprint());
}

TEST_F(PlannerServiceTest, AnImprovementIsSentAtOnceAndProgressIsThinned) {
  constexpr int kImprovements = 3;
  std::counting_semaphore<kImprovements> seen{0};  // by the client
  std::atomic<int> in_time{0};
  SearchWith([&](const PlanRequest& request, const BoundCostModel& model, const StopSignal& stop,
                 SearchObserver* observer) -> StatusOr<SearchResult> {
    NS_ASSIGN_OR_RETURN(const SearchResult result, RunSearch(request, model, stop, nullptr));
    for (int i = 0; i < kImprovements; ++i) {
      observer->OnImprovement(result);
      // The search does not go on before its plan has arrived.
      if (seen.try_acquire_for(std::chrono::seconds(60))) ++in_time;
    }
    for (int step = 0; step < 100'000; ++step) observer->OnProgress(step / 1e5);
    return result;
  });
  grpc::ClientContext context;
  const auto reader = stub_->ShardPlanStream(&context, Request());
  const TimePoint begin = clock_.Now();
  int progress_only = 0;
  int best = 0;
  for (v1::ShardPlanUpdate update; reader->Read(&update);) {
    if (!update.has_best()) {
      ++progress_only;
    } else if (!update.final()) {
      ++best;
      seen.release();
    }
  }
  ASSERT_THAT(FromGrpc(reader->Finish()), IsOk());
  EXPECT_EQ(best, kImprovements);
  EXPECT_EQ(in_time, kImprovements);
  EXPECT_LE(progress_only, 1 + MillisecondsBetween(begin, clock_.Now()) / 50);
}

TEST_F(PlannerServiceTest, ACancelEndsTheSearch) {
  std::atomic<bool> stopped{false};
  SearchWith([&](const PlanRequest& request, const BoundCostModel& model, const StopSignal& stop,
                 SearchObserver* observer) -> StatusOr<SearchResult> {
    NS_ASSIGN_OR_RETURN(SearchResult result, RunSearch(request, model, NeverStop(), nullptr));
    observer->OnImprovement(result);
    while (!stop.ShouldStop()) std::this_thread::yield();
    stopped = true;
    result.statistics.time_limit_reached = true;
    return result;
  });
  grpc::ClientContext context;
  const auto reader = stub_->ShardPlanStream(&context, Request());
  v1::ShardPlanUpdate first;
  ASSERT_TRUE(reader->Read(&first));
  EXPECT_EQ(gate_.in_flight(), 1);
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  // Nothing but the cancel ends it: the server neither drains nor has the call a deadline.
  const TimePoint give_up = clock_.Now() + std::chrono::seconds(60);
  while (gate_.in_flight() > 0 && clock_.Now() < give_up) std::this_thread::yield();
  EXPECT_EQ(gate_.in_flight(), 0);
  EXPECT_TRUE(stopped);
}

TEST_F(PlannerServiceTest, AnIllegalPlanIsAnAnswer) {
  const v1::ShardPlanRequest request = Request();
  NS_ASSERT_OK_AND_ASSIGN(const v1::ShardPlanResponse response, ShardPlan(request));
  v1::Plan plan = response.plan();
  plan.mutable_tables(2)->mutable_shards(0)->set_rank(7);
  NS_ASSERT_OK_AND_ASSIGN(const v1::EvaluatePlanResponse evaluation, Evaluate(request, plan));
  EXPECT_FALSE(evaluation.legal());
  ASSERT_EQ(evaluation.violations_size(), 1);
  EXPECT_EQ(evaluation.violations(0).field(), "plan.tables[2].shards[0].rank");
  EXPECT_FALSE(evaluation.has_cost());
}

TEST_F(PlannerServiceTest, APlanWithMillionsOfShardsIsRefusedAtOnce) {
  const v1::ShardPlanRequest request = Request();
  v1::Plan plan;
  plan.set_world_size(2);
  v1::TablePlan& table = *plan.add_tables();
  for (int i = 0; i <= 1'000'000; ++i) table.add_shards();
  EXPECT_THAT(Evaluate(request, plan),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("at most 1000000")));
}

TEST_F(PlannerServiceTest, AnUnknownStrategyOfAnyTextIsNamedInAReadableError) {
  v1::ShardPlanRequest request = Request();
  std::string strategy;
  for (int i = 0; i < 100; ++i) strategy += "\u20ac";
  request.mutable_search()->set_strategy("x" + strategy);
  const auto response = ShardPlan(request);
  ASSERT_THAT(response, StatusIs(absl::StatusCode::kInvalidArgument));
  // Details with half a character in them would not be parsed by the caller.
  EXPECT_THAT(Violations::FromStatus(response.status()), SizeIs(1));
}

TEST_F(PlannerServiceTest, FaultsOfAnEvaluationSayWhichPartTheyAreIn) {
  v1::ShardPlanRequest request = Request();
  NS_ASSERT_OK_AND_ASSIGN(const v1::ShardPlanResponse response, ShardPlan(request));
  v1::Plan plan = response.plan();
  plan.mutable_tables(0)->set_sharding_type("diagonal");
  request.mutable_tables(0)->set_num_embeddings(0);
  EXPECT_THAT(Evaluate(request, plan), StatusIs(absl::StatusCode::kInvalidArgument,
                                                AllOf(HasSubstr("request.tables[0].num_embeddings"),
                                                      HasSubstr("plan.tables[0].sharding_type"))));
}

TEST_F(PlannerServiceTest, ComputeIsPredictedSetBySetAndFaultsAreListed) {
  v1::PredictComputeRequest request;
  request.set_request_id("p-1");
  for (const int cols : {16, 64}) {
    v1::ComputeSet& set = *request.add_sets();
    set.set_batch_size(cols == 16 ? 65536 : 32);
    for (int shard = 0; shard < 2; ++shard) {
      v1::MeasuredShard& added = *set.add_shards();
      added.set_rows(1000);
      added.set_cols(cols);
      added.set_pooling_factor(2);
      added.add_reuse_histogram(1);
      for (int bin = 1; bin < 17; ++bin) added.add_reuse_histogram(0);
    }
  }
  const auto predict = [&]() -> StatusOr<v1::PredictComputeResponse> {
    grpc::ClientContext context;
    v1::PredictComputeResponse response;
    NS_RETURN_IF_ERROR(FromGrpc(stub_->PredictCompute(&context, request, &response)));
    return response;
  };
  NS_ASSERT_OK_AND_ASSIGN(const v1::PredictComputeResponse response, predict());
  ASSERT_EQ(response.predictions_size(), 2);
  EXPECT_NEAR(response.predictions(0).total_ms(), 1 + 0.64, 1e-6);
  EXPECT_NEAR(response.predictions(1).total_ms(), 1 + 2.56, 1e-6);
  EXPECT_FALSE(response.predictions(0).has_forward_ms());
  EXPECT_FALSE(response.predictions(0).has_total_interval());
  EXPECT_EQ(response.cost_model().version(), 2);
  EXPECT_EQ(response.measured_with().backend(), "neuroshard-cpu");
  EXPECT_EQ(response.request_id(), "p-1");
  ASSERT_EQ(response.warnings_size(), 1);
  EXPECT_THAT(response.warnings(0), HasSubstr("1 sets of another"));

  const v1::MeasuredShard shard = request.sets(0).shards(0);
  request.mutable_sets(1)->mutable_shards(1)->set_cols(0);
  request.mutable_cost_model()->set_version(-1);
  EXPECT_THAT(predict(), StatusIs(absl::StatusCode::kInvalidArgument,
                                  AllOf(HasSubstr("sets[1].shards[1].cols"),
                                        HasSubstr("cost_model.version"))));
  for (int i = 0; i < 100'001; ++i) request.add_sets();
  EXPECT_THAT(predict(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("at most 100000 shards"), HasSubstr("cost_model.version"))));
  request.mutable_cost_model()->clear_version();
  EXPECT_THAT(predict(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("at most 100000 shards")));
  request.clear_sets();
  request.mutable_cost_model()->set_name("h900");
  request.mutable_cost_model()->set_version(0);
  request.add_sets();
  *request.mutable_sets(0)->add_shards() = shard;
  EXPECT_THAT(predict(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("h900")));
}

TEST_F(PlannerServiceTest, ModelsAreListedWithTheDefaultAndTheRefused) {
  grpc::ClientContext context;
  v1::ListCostModelsResponse list;
  ASSERT_THAT(FromGrpc(stub_->ListCostModels(&context, {}, &list)), IsOk());
  ASSERT_EQ(list.models_size(), 2);
  EXPECT_FALSE(list.models(0).is_default());
  EXPECT_TRUE(list.models(1).is_default());
  EXPECT_EQ(list.models(1).version(), 2);
  ASSERT_EQ(list.refused_size(), 1);
  EXPECT_EQ(list.refused(0).path(), "fixture/13");
  EXPECT_THAT(list.refused(0).reason(), HasSubstr("unlucky"));

  v1::GetCostModelRequest request;
  request.mutable_cost_model()->set_name("fixture");
  request.mutable_cost_model()->set_version(1);
  v1::GetCostModelResponse model;
  grpc::ClientContext get_context;
  ASSERT_THAT(FromGrpc(stub_->GetCostModel(&get_context, request, &model)), IsOk());
  EXPECT_EQ(model.summary().version(), 1);
  EXPECT_EQ(model.summary().backend(), "neuroshard-cpu");
  EXPECT_EQ(model.summary().collective_backend(), "neuroshard-tcp");
  EXPECT_EQ(model.global_batch_size(), 65536);
  EXPECT_EQ(model.details().at("metrics.compute.kendall_tau"), "1");
  request.mutable_cost_model()->set_version(3);
  grpc::ClientContext missing_context;
  EXPECT_THAT(FromGrpc(stub_->GetCostModel(&missing_context, request, &model)),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(PlannerServiceTest, AnswersCarryTheDigestOfTheirModelAndAnotherOneIsRefused) {
  v1::ShardPlanRequest request = Request();
  NS_ASSERT_OK_AND_ASSIGN(const v1::ShardPlanResponse planned, ShardPlan(request));
  const std::string digest = planned.cost_model().digest();
  EXPECT_THAT(digest, SizeIs(64));
  request.mutable_cost_model()->set_digest(digest);
  NS_ASSERT_OK_AND_ASSIGN(const v1::ShardPlanResponse again, ShardPlan(request));
  EXPECT_EQ(again.request_fingerprint(), planned.request_fingerprint());
  NS_ASSERT_OK_AND_ASSIGN(const v1::EvaluatePlanResponse evaluated,
                          Evaluate(request, planned.plan()));
  EXPECT_EQ(evaluated.cost_model().digest(), digest);

  // Other files under the same version: another fingerprint, and the old digest is not there.
  const auto written = WriteModelFixture(root_ / "other", {.version = 2, .seed = 9});
  ASSERT_THAT(written, IsOk());
  std::filesystem::remove_all(root_ / "fixture/2");
  std::filesystem::rename(*written, root_ / "fixture/2");
  EXPECT_EQ(models_->Reload().changed_content.size(), 1U);
  for (const auto& status :
       {ShardPlan(request).status(), Evaluate(request, planned.plan()).status()}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 HasSubstr("the request is for digest " + digest)));
  }
  v1::GetCostModelRequest of_model;
  *of_model.mutable_cost_model() = request.cost_model();
  v1::GetCostModelResponse model;
  grpc::ClientContext context;
  EXPECT_THAT(FromGrpc(stub_->GetCostModel(&context, of_model, &model)),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  NS_ASSERT_OK_AND_ASSIGN(const v1::ShardPlanResponse changed, ShardPlan(Request()));
  EXPECT_NE(changed.cost_model().digest(), digest);
  EXPECT_NE(changed.request_fingerprint(), planned.request_fingerprint());
  request.mutable_cost_model()->set_digest("ABC");
  EXPECT_THAT(ShardPlan(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("cost_model.digest: must be 64")));
}

TEST_F(PlannerServiceTest, AVersionServesWhenItIsToldToUnlessThereAreReasonsAgainstIt) {
  const auto serve = [&](const std::string& name, int version, std::optional<double> share,
                         bool force) -> StatusOr<v1::ServeModelResponse> {
    v1::ServeModelRequest request;
    request.set_name(name);
    request.set_version(version);
    if (share) request.set_share(*share);
    request.set_force(force);
    v1::ServeModelResponse response;
    grpc::ClientContext context;
    NS_RETURN_IF_ERROR(FromGrpc(stub_->ServeModel(&context, request, &response)));
    return response;
  };
  EXPECT_THAT(serve("", 0, 1.5, false),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("name"), HasSubstr("version"), HasSubstr("share"))));
  EXPECT_THAT(serve("fixture", 9, std::nullopt, true), StatusIs(absl::StatusCode::kNotFound));
  NS_ASSERT_OK_AND_ASSIGN(const auto all, serve("fixture", 2, std::nullopt, false));
  EXPECT_EQ(all.channel(), "version 2");
  for (const std::optional<double> share : {std::optional<double>(), std::optional(0.1)}) {
    EXPECT_THAT(serve("fixture", 1, share, false),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("should not serve: forward_comm is 141% off")));
  }
  EXPECT_EQ(*ReadModelChannel(root_ / "fixture"), ModelChannel{2});
  NS_ASSERT_OK_AND_ASSIGN(const auto forced, serve("fixture", 1, 0.1, true));
  EXPECT_EQ(forced.channel(), "version 2, version 1 for 10% of the requests");
  EXPECT_THAT(forced.overruled(), SizeIs(1));
  models_->Reload();
  metrics_.ModelsNow(*models_->Current());
  grpc::ClientContext context;
  v1::ListCostModelsResponse list;
  ASSERT_THAT(FromGrpc(stub_->ListCostModels(&context, {}, &list)), IsOk());
  EXPECT_DOUBLE_EQ(list.models(0).share(), 0.1);
  EXPECT_THAT(list.models(0).poor_reasons(),
              ElementsAre(HasSubstr("forward_comm"), HasSubstr("has drifted: compute takes 2.50")));
  EXPECT_THAT(list.models(1).poor_reasons(), SizeIs(0));
  v1::ShardPlanRequest request = Request();
  request.mutable_cost_model()->set_name("fixture");
  request.mutable_cost_model()->set_version(1);
  NS_ASSERT_OK_AND_ASSIGN(const auto planned, ShardPlan(request));
  EXPECT_THAT(planned.warnings(), Contains(HasSubstr("should not be relied on: forward_comm")));
  // Taking it back needs no force.
  NS_ASSERT_OK_AND_ASSIGN(const auto none, serve("fixture", 1, 0, false));
  EXPECT_EQ(none.channel(), "version 2, version 1 for 0% of the requests");
  EXPECT_THAT(log_.str(), HasSubstr("model_serving_set"));
}

TEST_F(PlannerServiceTest, EveryAnswerSaysWhatItsPricesRestOn) {
  NS_ASSERT_OK_AND_ASSIGN(const v1::ShardPlanResponse planned, ShardPlan(Request()));
  EXPECT_EQ(planned.price_basis().kind(), "measured");
  EXPECT_THAT(planned.price_basis().text(), HasSubstr("neuroshard-cpu kernels"));
  NS_ASSERT_OK_AND_ASSIGN(const v1::EvaluatePlanResponse evaluated,
                          Evaluate(Request(), planned.plan()));
  EXPECT_EQ(evaluated.price_basis().text(), planned.price_basis().text());
  v1::ShardPlanRequest elsewhere = Request();
  elsewhere.mutable_topology()->mutable_hosts(0)->set_device("h100-sxm");
  EXPECT_THAT(ShardPlan(elsewhere), StatusIs(absl::StatusCode::kFailedPrecondition,
                                             HasSubstr("no cost model was measured on h100-sxm")));
  elsewhere.mutable_cost_model()->set_name("fixture");
  NS_ASSERT_OK_AND_ASSIGN(const v1::ShardPlanResponse by_name, ShardPlan(elsewhere));
  EXPECT_THAT(by_name.price_basis().differences(), Contains("the request is for h100-sxm"));
}

TEST_F(PlannerServiceTest, ListsTheDevicesThatRequestsMayName) {
  grpc::ClientContext context;
  v1::ListDevicesResponse response;
  ASSERT_THAT(FromGrpc(stub_->ListDevices(&context, {}, &response)), IsOk());
  ASSERT_EQ(response.devices_size(), static_cast<int>(PublishedDevices().size()));
  for (const v1::PublishedDevice& device : response.devices()) {
    const PublishedDevice& known = *FindDevice(device.name());
    EXPECT_EQ(device.memory_bytes(), known.memory_bytes);
    EXPECT_EQ(device.memory_bytes_per_s(), known.memory_bytes_per_s);
    EXPECT_EQ(device.fabric(), known.fabric ? known.fabric->name : "");
    EXPECT_EQ(device.intra_host_bytes_per_s() > 0, known.fabric.has_value());
    EXPECT_EQ(device.source(), known.source);
  }
}

}  // namespace
}  // namespace neuroshard
