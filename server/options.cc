#include "server/options.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <utility>

#include "common/base/build_info.h"
#include "common/observe/listen_address.h"

namespace neuroshard {
namespace {

// Refuses what no start could use, before anything is started.
void CheckAddress(ConfigReader& reader, std::string_view key, const std::string& address) {
  if (const auto parsed = ParseListenAddress(address); !parsed.ok()) {
    reader.AddViolation(key, Message(parsed.status()));
  }
}

}  // namespace

StatusOr<PlannerOptions> ReadPlannerOptions(const std::string& path) {
  PlannerOptions options;
  NS_ASSIGN_OR_RETURN(ConfigReader reader, ConfigReader::FromFile(path));
  ConfigReader rpc = ReadRpcServerOptions(reader, &options.rpc);
  rpc.Read("max_search_threads_in_flight", &options.service_limits.max_search_threads_in_flight,
           {0, 1'000'000});
  rpc.Read("max_request_memory_bytes", &options.service_limits.max_request_memory_bytes,
           {1 << 20, std::int64_t{1} << 50});
  std::int64_t write_timeout_ms = options.service_limits.write_timeout.count();
  rpc.Read("write_timeout_ms", &write_timeout_ms, {100, 3'600'000});
  options.service_limits.write_timeout = std::chrono::milliseconds(write_timeout_ms);
  CheckAddress(reader, "listen", options.rpc.listen);
  reader.Read("metrics_listen", &options.metrics_listen);
  if (!options.metrics_listen.empty()) {
    CheckAddress(reader, "metrics_listen", options.metrics_listen);
  }
  ReadLogOptions(reader, &options.log);
  ConfigReader models = reader.Section("models");
  models.Read("root", &options.models_root);
  models.Read("default", &options.default_model);
  models.Read("accept_unusable", &options.accept_unusable_models);
  models.Read("poll_ms", &options.model_poll_ms, {0, 3'600'000});
  ConfigReader limits = reader.Section("limits");
  limits.Read("max_tables", &options.limits.max_tables, {1, 1'000'000});
  limits.Read("max_devices", &options.limits.max_devices, {1, 1'000'000});
  limits.Read("max_search_threads", &options.limits.max_search_threads, {1, 1024});
  limits.Read("max_constraint_entries", &options.limits.max_constraint_entries, {0, 100'000'000});
  limits.Read("max_plan_shards", &options.limits.max_plan_shards, {1, 100'000'000});
  limits.Read("max_prediction_shards", &options.limits.max_prediction_shards, {1, 100'000'000});
  limits.Read("max_search_ms", &options.max_search_ms, {1, 86'400'000});
  limits.Read("max_request_values", &options.service_limits.max_request_values, {1, 1'000'000'000});
  NS_RETURN_IF_ERROR(reader.Finish());
  return options;
}

std::variant<PlannerOptions, int> ParsePlannerCommandLine(int argc, const char* const* argv) {
  constexpr int kFailure = 1;
  constexpr int kUsage = 2;
  CLI::App app(
      "NeuroShard planner: answers ShardPlan RPCs with plans searched against cost models.\n"
      "SIGTERM or SIGINT drains, SIGHUP looks for new models at once.",
      "neuroshard-planner");
  app.set_version_flag("--version", BuildText());
  std::string config;
  std::string models;
  std::string listen;
  std::string metrics;
  std::string log_level;
  app.add_option("--config", config, "YAML file with options; configs/planner.yaml has them all")
      ->type_name("FILE");
  const auto* models_flag =
      app.add_option("--models", models, "root of the model repository")->type_name("ROOT");
  const auto* listen_flag =
      app.add_option("--listen", listen, "address of the RPC server; port 0: choose one")
          ->type_name("HOST:PORT");
  const auto* metrics_flag =
      app.add_option("--metrics", metrics, "address of /metrics; port 0: choose one")
          ->type_name("HOST:PORT");
  const auto* log_flag = app.add_option("--log-level", log_level, "what is written to stderr")
                             ->check(CLI::IsMember({"debug", "info", "warn", "error", "off"}));
  bool accept_unusable = false;
  app.add_flag("--accept-unusable-models", accept_unusable,
               "serve cost models that are marked as unusable, with a warning");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }

  PlannerOptions options;
  if (!config.empty()) {
    auto read = ReadPlannerOptions(config);
    if (!read.ok()) {
      std::cerr << "neuroshard-planner: " << Message(read.status()) << '\n';
      return kFailure;
    }
    options = *std::move(read);
  }
  if (models_flag->count() > 0) options.models_root = models;
  if (accept_unusable) options.accept_unusable_models = true;
  if (listen_flag->count() > 0) options.rpc.listen = listen;
  if (metrics_flag->count() > 0) options.metrics_listen = metrics;
  if (log_flag->count() > 0) options.log.level = log_level;
  return options;
}

void LogOptionsInForce(const PlannerOptions& options, const Logger& logger) {
  logger.Info(
      "options",
      {{"listen", options.rpc.listen},
       {"metrics_listen", options.metrics_listen},
       {"log_level", options.log.level},
       {"rpc.max_in_flight", options.rpc.max_in_flight},
       {"rpc.max_message_bytes", options.rpc.max_message_bytes},
       {"rpc.accept_compressed", options.rpc.accept_compressed},
       {"rpc.max_streams_per_connection", options.rpc.max_streams_per_connection},
       {"rpc.max_spare_threads", options.rpc.max_spare_threads},
       {"rpc.max_connections", options.rpc.max_connections},
       {"rpc.max_connection_idle_ms", options.rpc.max_connection_idle_ms},
       {"rpc.max_connection_age_ms", options.rpc.max_connection_age_ms},
       {"rpc.max_search_threads_in_flight", options.service_limits.max_search_threads_in_flight},
       {"rpc.max_request_memory_bytes", options.service_limits.max_request_memory_bytes},
       {"rpc.write_timeout_ms", options.service_limits.write_timeout.count()},
       {"rpc.drain_notice_ms", options.rpc.drain_notice_ms},
       {"rpc.drain_grace_ms", options.rpc.drain_grace_ms},
       {"models.root", options.models_root},
       {"models.default", options.default_model},
       {"models.accept_unusable", options.accept_unusable_models},
       {"models.poll_ms", options.model_poll_ms},
       {"limits.max_tables", options.limits.max_tables},
       {"limits.max_devices", options.limits.max_devices},
       {"limits.max_search_threads", options.limits.max_search_threads},
       {"limits.max_constraint_entries", options.limits.max_constraint_entries},
       {"limits.max_plan_shards", options.limits.max_plan_shards},
       {"limits.max_request_values", options.service_limits.max_request_values},
       {"limits.max_prediction_shards", options.limits.max_prediction_shards},
       {"limits.max_search_ms", options.max_search_ms}});
}

}  // namespace neuroshard
