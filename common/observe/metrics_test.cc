#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include <memory>
#include <sstream>
#include <string>

#include "common/observe/listen_address.h"
#include "common/observe/metrics_exporter.h"
#include "common/observe/rpc_metrics.h"
#include "tests/support/http_get.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::HttpGet;
using ::neuroshard::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(MetricsTest, ScrapeShowsWhatTheRpcsDid) {
  const auto registry = std::make_shared<prometheus::Registry>();
  RpcMetrics metrics(*registry);
  metrics.Began("ShardPlan");
  metrics.Ended("ShardPlan", absl::StatusCode::kOk, 0.004);
  metrics.Began("ShardPlan");
  metrics.Ended("ShardPlan", absl::StatusCode::kInvalidArgument, 0.0001);
  metrics.Began("ListCostModels");
  NS_ASSERT_OK_AND_ASSIGN(const auto exporter, MetricsExporter::Start("127.0.0.1:0", registry));
  NS_ASSERT_OK_AND_ASSIGN(const ListenAddress address, ParseListenAddress(exporter->address()));
  ASSERT_NE(address.port, 0);

  EXPECT_THAT(
      HttpGet(address.port, "/metrics"),
      AllOf(
          HasSubstr("neuroshard_rpc_requests_total{code=\"OK\",rpc=\"ShardPlan\"} 1"),
          HasSubstr("neuroshard_rpc_requests_total{code=\"INVALID_ARGUMENT\",rpc=\"ShardPlan\"} 1"),
          HasSubstr("neuroshard_rpc_duration_seconds_bucket{rpc=\"ShardPlan\",le=\"0.005\"} 2"),
          HasSubstr("neuroshard_rpc_in_flight{rpc=\"ShardPlan\"} 0"),
          HasSubstr("neuroshard_rpc_in_flight{rpc=\"ListCostModels\"} 1")));
}

TEST(MetricsTest, OnlyMetricsAreServedAndNobodyCanKeepOthersOut) {
  NS_ASSERT_OK_AND_ASSIGN(
      const auto exporter,
      MetricsExporter::Start("127.0.0.1:0", std::make_shared<prometheus::Registry>()));
  NS_ASSERT_OK_AND_ASSIGN(const ListenAddress address, ParseListenAddress(exporter->address()));
  EXPECT_THAT(HttpGet(address.port, "/"), HasSubstr("404 Not Found"));
  EXPECT_THAT(HttpGet(address.port, "/metrics?name=x"), HasSubstr("200 OK"));
  EXPECT_THAT(HttpGet(address.port, "/" + std::string(100'000, 'x')), Not(HasSubstr("200 OK")));
  EXPECT_THAT(HttpGet(address.port, "/metrics"), HasSubstr("200 OK"));
}

TEST(MetricsTest, APortThatNobodyAskedForMayBeAnotherOne) {
  const auto registry = std::make_shared<prometheus::Registry>();
  NS_ASSERT_OK_AND_ASSIGN(const auto first, MetricsExporter::Start("127.0.0.1:0", registry));
  std::ostringstream log;
  const auto logger = Logger::ToStream(&log);
  NS_ASSERT_OK_AND_ASSIGN(const auto second, MetricsExporter::StartForServer(
                                                 first->address(), false, registry, *logger));
  EXPECT_NE(second->address(), first->address());
  EXPECT_THAT(log.str(), AllOf(HasSubstr("warning metrics_port_taken address=" + first->address()),
                               HasSubstr("info metrics_listening address=" + second->address())));
  EXPECT_THAT(MetricsExporter::StartForServer(first->address(), true, registry, *logger),
              StatusIs(absl::StatusCode::kUnavailable));
  NS_ASSERT_OK_AND_ASSIGN(const auto none,
                          MetricsExporter::StartForServer("", true, registry, *logger));
  EXPECT_EQ(none, nullptr);
}

TEST(MetricsTest, BusyPortAndBadAddressAreErrorsThatSayWhy) {
  const auto registry = std::make_shared<prometheus::Registry>();
  NS_ASSERT_OK_AND_ASSIGN(const auto first, MetricsExporter::Start("127.0.0.1:0", registry));
  EXPECT_THAT(MetricsExporter::Start(first->address(), registry),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr(first->address()), HasSubstr("Address already in use"))));
  EXPECT_THAT(MetricsExporter::Start("9464", registry),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("HOST:PORT")));
}

}  // namespace
}  // namespace neuroshard
