#include "client/stub/planner_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "common/base/violations.h"
#include "common/rpc/status_mapping.h"
#include "tests/support/fake_planner.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::testing::ElementsAre;
using testing::FakePlanner;
using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::StartsWith;
using testing::StatusIs;
using ::testing::UnorderedElementsAre;

TEST(ModelReferenceTest, IsANameWithOrWithoutAVersion) {
  EXPECT_EQ(*ParseModelReference("cpu"), (CostModelRef{"cpu", 0}));
  EXPECT_EQ(*ParseModelReference("cpu/12"), (CostModelRef{"cpu", 12}));
  for (const char* text : {"cpu", "cpu/12"}) {
    EXPECT_EQ(ModelReferenceText(*ParseModelReference(text)), text);
  }
  EXPECT_EQ(EncodeModelReference({"cpu", 12}).version(), 12);
  for (const char* bad : {"", "/1", "cpu/", "cpu/0", "cpu/-1", "cpu/1x", "cpu/99999999999"}) {
    EXPECT_THAT(ParseModelReference(bad), StatusIs(absl::StatusCode::kInvalidArgument)) << bad;
  }
}

CallPolicy QuickPolicy() {
  CallPolicy policy;
  policy.deadline = std::chrono::milliseconds(30'000);
  policy.first_backoff = std::chrono::milliseconds(1);
  policy.longest_backoff = std::chrono::milliseconds(2);
  return policy;
}

grpc::Status Draining() { return {grpc::StatusCode::UNAVAILABLE, "draining"}; }

TEST(PlannerClientTest, AsksForPredictions) {
  testing::FakePlanner planner;
  planner.predict = [](const v1::PredictComputeRequest& request,
                       v1::PredictComputeResponse* response) {
    for (const v1::ComputeSet& set : request.sets()) {
      response->add_predictions()->set_total_ms(static_cast<double>(set.shards_size()));
    }
    return grpc::Status::OK;
  };
  v1::PredictComputeRequest request;
  request.add_sets()->add_shards();
  const auto response = PlannerClient(planner.address()).PredictCompute(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->predictions(0).total_ms(), 1);
}

TEST(PlannerClientTest, ReplicasTakeTurnsAndOneThatIsGoneTakesNone) {
  FakePlanner first;
  FakePlanner second;
  std::vector<std::string> warnings;
  CallPolicy policy = QuickPolicy();
  policy.warn = [&warnings](const std::string& warning) { warnings.push_back(warning); };
  const std::string list = first.address() + ",localhost" +
                           second.address().substr(second.address().rfind(':')) +
                           ",127.0.0.1:1,no-such-host.invalid:1";
  const PlannerClient client(list, policy);
  for (int i = 0; i < 10; ++i) ASSERT_THAT(client.ShardPlan({}), IsOk());
  EXPECT_EQ(first.calls(), 5);
  EXPECT_EQ(second.calls(), 5);
  EXPECT_THAT(warnings,
              UnorderedElementsAre("planner at 127.0.0.1:1: nothing listens there (Connection "
                                   "refused); calls go to the others of " +
                                       list,
                                   StartsWith("planner at no-such-host.invalid:1: ")));
}

TEST(PlannerClientTest, AReplicaThatGoesIsToldOfOnceAndOneThatComesBackTakesCalls) {
  auto first = std::make_unique<FakePlanner>();
  FakePlanner second;
  const std::string address = first->address();
  std::vector<std::string> warnings;
  CallPolicy policy = QuickPolicy();
  policy.warn = [&warnings](const std::string& warning) { warnings.push_back(warning); };
  const PlannerClient client(address + "," + second.address(), policy);
  while (first->calls() == 0) ASSERT_THAT(client.ShardPlan({}), IsOk());
  first.reset();
  while (warnings.empty()) ASSERT_THAT(client.ShardPlan({}), IsOk());
  FakePlanner again(address);
  while (again.calls() == 0) ASSERT_THAT(client.ShardPlan({}), IsOk());
  EXPECT_THAT(warnings, ElementsAre(StartsWith("planner at " + address + ": ")));
}

TEST(PlannerClientTest, WhereNoReplicaCanBeUsedTheCallSaysSo) {
  std::vector<std::string> warnings;
  CallPolicy policy = QuickPolicy();
  policy.warn = [&warnings](const std::string& warning) { warnings.push_back(warning); };
  EXPECT_THAT(PlannerClient("127.0.0.1:1,127.0.0.1:2", policy).ListCostModels(),
              StatusIs(absl::StatusCode::kUnavailable,
                       "planner at 127.0.0.1:1,127.0.0.1:2: nothing listens there (Connection "
                       "refused)"));
  EXPECT_EQ(warnings.size(), 2u);
}

TEST(PlannerClientTest, UnavailableIsTriedAgainAndThenAnswered) {
  FakePlanner planner;
  // The third is what gRPC makes of calls that arrive while it shuts down.
  planner.failures = {Draining(), Draining(), {grpc::StatusCode::CANCELLED, ""}};
  planner.plan = [](const v1::ShardPlanRequest& request, v1::ShardPlanResponse* response) {
    response->set_request_id(request.request_id());
    return grpc::Status::OK;
  };
  v1::ShardPlanRequest request;
  request.set_request_id("mine");
  const auto response = PlannerClient(planner.address(), QuickPolicy()).ShardPlan(request);
  ASSERT_THAT(response, IsOk());
  EXPECT_EQ(response->request_id(), "mine");
  EXPECT_EQ(planner.calls(), 4);
}

TEST(PlannerClientTest, ACancelThatSaysWhyIsNotRepeated) {
  FakePlanner planner;
  planner.failures = {{grpc::StatusCode::CANCELLED, "CANCELLED"},
                      {grpc::StatusCode::CANCELLED, "the caller has left"}};
  EXPECT_THAT(PlannerClient(planner.address(), QuickPolicy()).ShardPlan({}),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("the caller has left")));
  EXPECT_EQ(planner.calls(), 2);
}

TEST(PlannerClientTest, AttemptsAreBounded) {
  FakePlanner planner;
  planner.failures.assign(10, Draining());
  const auto response = PlannerClient(planner.address(), QuickPolicy()).ShardPlan({});
  EXPECT_THAT(response, StatusIs(absl::StatusCode::kUnavailable, HasSubstr(planner.address())));
  EXPECT_EQ(planner.calls(), 4);
}

TEST(PlannerClientTest, OtherFailuresAreFinalAndKeepTheirViolations) {
  FakePlanner planner;
  Violations violations;
  violations.Add("tables[3].embedding_dim", "must be at least 1, got -4");
  planner.failures = {ToGrpc(violations.ToStatus())};
  const auto response = PlannerClient(planner.address(), QuickPolicy()).ShardPlan({});
  EXPECT_THAT(response, StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Violations::FromStatus(response.status()),
              ElementsAre(Violation{"tables[3].embedding_dim", "must be at least 1, got -4"}));
  EXPECT_EQ(planner.calls(), 1);
}

TEST(PlannerClientTest, NobodyListeningIsUnavailableAndNamesTheAddress) {
  EXPECT_THAT(PlannerClient("127.0.0.1:1", QuickPolicy()).ListCostModels(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("planner at 127.0.0.1:1")));
}

TEST(PlannerClientTest, AnOverloadedPlannerIsAskedAgainWhenItSays) {
  FakePlanner planner;
  const auto overloaded = [](std::chrono::milliseconds delay) {
    return ToGrpc(WithRetryAfter(ResourceExhausted("busy"), delay));
  };
  planner.failures = {overloaded(std::chrono::milliseconds(40))};
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(PlannerClient(planner.address(), QuickPolicy()).ShardPlan({}), IsOk());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(40));
  EXPECT_EQ(planner.calls(), 2);
  // A long wait is told once, a short one is not.
  CallPolicy policy = QuickPolicy();
  std::vector<std::string> told;
  policy.on_wait = [&](const Status& why, std::chrono::milliseconds wait) {
    EXPECT_GE(wait, std::chrono::milliseconds(1000));
    told.push_back(Message(why));
  };
  planner.failures = {overloaded(std::chrono::milliseconds(40)),
                      overloaded(std::chrono::milliseconds(1000)),
                      overloaded(std::chrono::milliseconds(1000))};
  EXPECT_THAT(PlannerClient(planner.address(), policy).ShardPlan({}), IsOk());
  EXPECT_THAT(told, ElementsAre(HasSubstr("busy")));
  EXPECT_EQ(planner.calls(), 6);
  // Nobody waits longer than a call may take.
  planner.failures = {overloaded(std::chrono::hours(24))};
  EXPECT_THAT(PlannerClient(planner.address(), QuickPolicy()).ShardPlan({}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("busy")));
  EXPECT_EQ(planner.calls(), 7);
}

TEST(PlannerClientTest, AStreamShowsItsProgressAndReturnsTheFinalPlan) {
  FakePlanner planner;
  planner.plan = [](const v1::ShardPlanRequest&, v1::ShardPlanResponse* response) {
    response->set_seed(5);
    return grpc::Status::OK;
  };
  std::vector<double> progress;
  const auto response = PlannerClient(planner.address(), QuickPolicy())
                            .ShardPlanStream({}, [&](const v1::ShardPlanUpdate& update) {
                              progress.push_back(update.progress());
                            });
  ASSERT_THAT(response, IsOk());
  EXPECT_EQ(response->seed(), 5u);
  EXPECT_THAT(progress, ElementsAre(0.5, 1.0));
}

TEST(PlannerClientTest, AStreamThatBreaksAfterItsStartIsNotRepeated) {
  FakePlanner planner;
  planner.stream_breaks = true;
  EXPECT_THAT(
      PlannerClient(planner.address(), QuickPolicy()).ShardPlanStream({}, [](const auto&) {}),
      StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(planner.calls(), 1);
}

TEST(PlannerClientTest, AStreamThatDidNotStartIsTriedAgain) {
  FakePlanner planner;
  planner.failures = {Draining()};
  EXPECT_THAT(
      PlannerClient(planner.address(), QuickPolicy()).ShardPlanStream({}, [](const auto&) {}),
      IsOk());
  EXPECT_EQ(planner.calls(), 2);
}

TEST(PlannerClientTest, AnswersAboveTheDefaultLimitOfGrpcArrive) {
  FakePlanner planner;
  planner.plan = [](const v1::ShardPlanRequest&, v1::ShardPlanResponse* response) {
    response->add_warnings(std::string(8 << 20, 'x'));
    return grpc::Status::OK;
  };
  EXPECT_THAT(PlannerClient(planner.address(), QuickPolicy()).ShardPlan({}), IsOk());
}

}  // namespace
}  // namespace neuroshard
