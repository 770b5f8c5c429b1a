#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/failure_reason.h"
#include "common/observe/listen_address.h"
#include "common/observe/metrics_exporter.h"
#include "common/observe/server_metrics.h"
#include "tests/support/http_get.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::HttpGet;
using ::neuroshard::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

TEST(MetricsTest, ScrapeShowsWhatTheRpcsDid) {
  const auto registry = std::make_shared<prometheus::Registry>();
  RpcMetrics metrics(*registry);
  metrics.Began("ShardPlan");
  metrics.Ended("ShardPlan", absl::OkStatus(), 0.004);
  metrics.Began("ShardPlan");
  metrics.Ended("ShardPlan", InvalidArgument("no"), 0.0001);
  metrics.Began("ShardPlan");
  metrics.Ended("ShardPlan", WithReason(ResourceExhausted("busy"), FailureReason::kOverloaded), 9);
  metrics.Declare("/p.S/EvaluatePlan", "EvaluatePlan");
  for (const char* path : {"/p.S/EvaluatePlan", "/p.S/Evaluate", "/x/EvaluatePlan"}) {
    metrics.RefusedOutside(path, absl::PermissionDeniedError("no role"));
  }
  metrics.SetConnections(3, 5);
  metrics.SetLimit(7);
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
          HasSubstr("neuroshard_rpc_duration_seconds_count{rpc=\"ShardPlan\"} 2"),
          HasSubstr("neuroshard_rpc_shed_total{reason=\"OVERLOADED\",rpc=\"ShardPlan\"} 1"),
          HasSubstr("neuroshard_rpc_shed_total{reason=\"DRAINING\",rpc=\"EvaluatePlan\"} 0"),
          HasSubstr("neuroshard_rpc_requests_total{code=\"OK\",rpc=\"EvaluatePlan\"} 0"),
          HasSubstr(
              "neuroshard_rpc_requests_total{code=\"PERMISSION_DENIED\",rpc=\"EvaluatePlan\"} 1"),
          HasSubstr("neuroshard_rpc_requests_total{code=\"PERMISSION_DENIED\",rpc=\"other\"} 2"),
          HasSubstr("neuroshard_rpc_connections 3\n"),
          HasSubstr("neuroshard_rpc_connections_limit 5\n"),
          HasSubstr("neuroshard_rpc_in_flight_limit 7"),
          HasSubstr("neuroshard_rpc_in_flight{rpc=\"ShardPlan\"} 0"),
          HasSubstr("neuroshard_rpc_in_flight{rpc=\"ListCostModels\"} 1")));
}

TEST(MetricsTest, TheProcessTellsOfItself) {
  double threads = 0;
  std::vector<std::string> names;
  for (const prometheus::MetricFamily& family : CollectProcessMetrics()) {
    names.push_back(family.name);
    const prometheus::ClientMetric& metric = family.metric.front();
    if (family.name == "process_threads") threads = metric.gauge.value;
    const double value =
        family.type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value;
    if (family.name == "process_start_time_seconds") {
      EXPECT_NEAR(value, static_cast<double>(std::time(nullptr)), 3600);
    } else if (family.name != "process_cpu_seconds_total") {
      EXPECT_GE(value, 1) << family.name;
    }
  }
  EXPECT_THAT(names,
              UnorderedElementsAre("process_cpu_seconds_total", "process_start_time_seconds",
                                   "process_resident_memory_bytes", "process_virtual_memory_bytes",
                                   "process_threads", "process_open_fds", "process_max_fds",
                                   "neuroshard_build_info"));
  EXPECT_LT(threads, 100);
}

TEST(MetricsTest, OnlyMetricsAreServedAndNobodyCanKeepOthersOut) {
  NS_ASSERT_OK_AND_ASSIGN(
      const auto exporter,
      MetricsExporter::Start("127.0.0.1:0", std::make_shared<prometheus::Registry>()));
  NS_ASSERT_OK_AND_ASSIGN(const ListenAddress address, ParseListenAddress(exporter->address()));
  EXPECT_THAT(HttpGet(address.port, "/x"), HasSubstr("404 Not Found"));
  EXPECT_THAT(HttpGet(address.port, "/metrics?name=x"), HasSubstr("200 OK"));
  EXPECT_THAT(HttpGet(address.port, "/" + std::string(100'000, 'x')), Not(HasSubstr("200 OK")));
  EXPECT_THAT(HttpGet(address.port, "/metrics"), HasSubstr("200 OK"));
}

TEST(MetricsTest, AStatusIsAPageAndJsonWhileThereIsOne) {
  NS_ASSERT_OK_AND_ASSIGN(
      const auto exporter,
      MetricsExporter::Start("127.0.0.1:0", std::make_shared<prometheus::Registry>()));
  NS_ASSERT_OK_AND_ASSIGN(const ListenAddress address, ParseListenAddress(exporter->address()));
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(HttpGet(address.port, "/"), HasSubstr("503 Service Unavailable"));
    EXPECT_THAT(HttpGet(address.port, "/status.json"), HasSubstr("503 Service Unavailable"));
    exporter->SetStatus("planner", [] { return std::string(R"({"version": "<1>"})"); });
    EXPECT_THAT(HttpGet(address.port, "/"),
                AllOf(HasSubstr("200 OK"), HasSubstr("text/html"), HasSubstr("&lt;1&gt;")));
    EXPECT_THAT(
        HttpGet(address.port, "/status.json"),
        AllOf(HasSubstr("application/json"), HasSubstr("\r\n\r\n{\"version\": \"<1>\"}\n")));
    exporter->SetStatus("", nullptr);
  }
}

// As many as are kept, and more.
TEST(MetricsTest, SilentClientsKeepNoScraperWaiting) {
  NS_ASSERT_OK_AND_ASSIGN(
      const auto exporter,
      MetricsExporter::Start("127.0.0.1:0", std::make_shared<prometheus::Registry>()));
  NS_ASSERT_OK_AND_ASSIGN(const ListenAddress address, ParseListenAddress(exporter->address()));
  std::vector<int> silent;
  const auto connect_more = [&](int count) {
    while (count-- > 0) {
      silent.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in name{};
      name.sin_family = AF_INET;
      name.sin_port = htons(static_cast<std::uint16_t>(address.port));
      name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      ASSERT_EQ(connect(silent.back(), reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
    }
  };
  connect_more(20);
  EXPECT_THAT(HttpGet(address.port, "/metrics"), HasSubstr("200 OK"));
  char byte = 0;
  EXPECT_EQ(recv(silent.back(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN) << "the scraper waited until a silent client's time was over";
  connect_more(100);
  EXPECT_THAT(HttpGet(address.port, "/metrics"), HasSubstr("200 OK"));
  EXPECT_EQ(recv(silent.front(), &byte, 1, 0), 0) << "the oldest made room";
  for (const int fd : silent) close(fd);
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
