#include "server/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::IsOk;
using ::neuroshard::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::variant<PlannerOptions, int> Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "neuroshard-planner");
  return ParsePlannerCommandLine(
      static_cast<int>(arguments.size()), arguments.data(), [](const PlannerOptions& options) {
        return options.default_model == "gone" ? absl::NotFoundError("no model gone")
                                               : absl::OkStatus();
      });
}

std::string WriteConfig(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/planner_options_test_" +
                           ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                           ".yaml";
  std::ofstream(path) << text;
  return path;
}

// The file is documentation: what it shows is what the struct says.
TEST(PlannerOptionsTest, TheShippedFileHoldsTheDefaults) {
  const auto read = ReadPlannerOptions(NEUROSHARD_SOURCE_DIR "/configs/planner.yaml");
  ASSERT_THAT(read, IsOk());
  const PlannerOptions defaults;
  EXPECT_EQ(read->rpc.listen, defaults.rpc.listen);
  EXPECT_EQ(read->rpc.max_in_flight, defaults.rpc.max_in_flight);
  EXPECT_EQ(read->rpc.max_message_bytes, defaults.rpc.max_message_bytes);
  EXPECT_EQ(read->rpc.drain_notice_ms, defaults.rpc.drain_notice_ms);
  EXPECT_EQ(read->rpc.drain_grace_ms, defaults.rpc.drain_grace_ms);
  EXPECT_EQ(read->metrics_listen, defaults.metrics_listen);
  EXPECT_EQ(read->log.level, defaults.log.level);
  EXPECT_EQ(read->models_root, defaults.models_root);
  EXPECT_EQ(read->default_model, defaults.default_model);
  EXPECT_EQ(read->accept_unusable_models, defaults.accept_unusable_models);
  EXPECT_EQ(read->model_poll_ms, defaults.model_poll_ms);
  EXPECT_EQ(read->limits.max_tables, defaults.limits.max_tables);
  EXPECT_EQ(read->limits.max_devices, defaults.limits.max_devices);
  EXPECT_EQ(read->limits.max_search_threads, defaults.limits.max_search_threads);
  EXPECT_EQ(read->limits.max_constraint_entries, defaults.limits.max_constraint_entries);
  EXPECT_EQ(read->limits.max_plan_shards, defaults.limits.max_plan_shards);
  EXPECT_EQ(read->limits.max_prediction_shards, defaults.limits.max_prediction_shards);
  EXPECT_EQ(read->max_search_ms, defaults.max_search_ms);
  EXPECT_EQ(read->rpc.accept_compressed, defaults.rpc.accept_compressed);
  EXPECT_EQ(read->rpc.max_streams_per_connection, defaults.rpc.max_streams_per_connection);
  EXPECT_EQ(read->rpc.max_spare_threads, defaults.rpc.max_spare_threads);
  EXPECT_EQ(read->rpc.max_connections, defaults.rpc.max_connections);
  EXPECT_EQ(read->rpc.max_connection_idle_ms, defaults.rpc.max_connection_idle_ms);
  EXPECT_EQ(read->rpc.max_connection_age_ms, defaults.rpc.max_connection_age_ms);
  EXPECT_EQ(read->service_limits.max_search_threads_in_flight,
            defaults.service_limits.max_search_threads_in_flight);
  EXPECT_EQ(read->service_limits.max_request_memory_bytes,
            defaults.service_limits.max_request_memory_bytes);
  EXPECT_EQ(read->service_limits.max_request_values, defaults.service_limits.max_request_values);
  EXPECT_EQ(read->service_limits.write_timeout, defaults.service_limits.write_timeout);
}

TEST(PlannerOptionsTest, FlagsOverrideTheFile) {
  const std::string config =
      WriteConfig("listen: 127.0.0.1:1\nmetrics_listen: 127.0.0.1:2\nmodels: {root: a}\n");
  const auto parsed = Parse({"--config", config.c_str(), "--listen", "127.0.0.1:0", "--models", "b",
                             "--accept-unusable-models"});
  const auto* options = std::get_if<PlannerOptions>(&parsed);
  ASSERT_NE(options, nullptr);
  EXPECT_EQ(options->rpc.listen, "127.0.0.1:0");
  EXPECT_EQ(options->metrics_listen, "127.0.0.1:2");
  EXPECT_EQ(options->models_root, "b");
  EXPECT_TRUE(options->accept_unusable_models);
}

TEST(PlannerOptionsTest, EveryFaultOfTheFileIsNamed) {
  EXPECT_THAT(
      ReadPlannerOptions(WriteConfig("listen: nowhere\nmodels: {rot: a, poll_ms: -1}\n"
                                     "limits: {max_tables: 0}\nmetrics_listen: ''\n")),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("listen: \"nowhere\" is not HOST:PORT"),
                     HasSubstr("models.rot: unknown key"), HasSubstr("models.poll_ms: must be in"),
                     HasSubstr("limits.max_tables: must be in"))));
}

TEST(PlannerOptionsTest, ExitCodesOfTheCommandLine) {
  EXPECT_EQ(std::get<int>(Parse({"--help"})), 0);
  EXPECT_EQ(std::get<int>(Parse({"--no-such-flag"})), 2);
  EXPECT_EQ(std::get<int>(Parse({"--log-level", "loud"})), 2);
  EXPECT_EQ(std::get<int>(Parse({"--config", "/no/such/file.yaml"})), 2);
  EXPECT_EQ(std::get<int>(Parse({"--config", ""})), 2);
  EXPECT_EQ(std::get<int>(Parse({"--listen", "nowhere"})), 2);
  EXPECT_EQ(std::get<int>(Parse(
                {"--check-config", "--models", NEUROSHARD_SOURCE_DIR, "--listen", "127.0.0.1:0"})),
            0);
  EXPECT_EQ(std::get<int>(Parse({"--check-config", "--models", NEUROSHARD_SOURCE_DIR, "--listen",
                                 "127.0.0.1:0", "--config",
                                 WriteConfig("models: {default: gone}\n").c_str()})),
            2);
}

}  // namespace
}  // namespace neuroshard
