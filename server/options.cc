#include "server/options.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "common/base/printable_text.h"
#include "common/cli/command_line_parse.h"
#include "common/cli/exit_code.h"
#include "common/observe/listen_address.h"
#include "server/models/model_repository.h"

namespace neuroshard {
namespace {

// What could be read is in `options` even where there are faults.
Status ReadFile(const std::string& path, PlannerOptions& options) {
  NS_ASSIGN_OR_RETURN(ConfigReader reader, ConfigReader::FromFile(path));
  ConfigReader rpc = ReadRpcServerOptions(reader, &options.rpc);
  rpc.Read("max_search_threads_in_flight", &options.service_limits.max_search_threads_in_flight,
           {0, 1'000'000});
  rpc.Read("max_request_memory_bytes", &options.service_limits.max_request_memory_bytes,
           {1 << 20, std::int64_t{1} << 50});
  std::int64_t write_timeout_ms = options.service_limits.write_timeout.count();
  rpc.Read("write_timeout_ms", &write_timeout_ms, {100, 3'600'000});
  options.service_limits.write_timeout = std::chrono::milliseconds(write_timeout_ms);
  ReadListenAddress(reader, "metrics_listen", EmptyAddress::kMeansNone, &options.metrics_listen);
  options.metrics_stated = reader.Has("metrics_listen");
  ReadLogOptions(reader, &options.log);
  ConfigReader models = reader.Section("models");
  models.Read("root", &options.models_root);
  models.Read("default", &options.default_model);
  if (const auto model = ParseDefaultModel(options.default_model); !model.ok()) {
    models.AddViolation("default", Message(model.status()));
  }
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
  ConfigReader quotas = reader.Section("quotas");
  options.quotas = ReadCallerQuotas(quotas);
  return reader.Finish();
}

// The models that were installed beside this program (PREFIX/bin, PREFIX/share), wherever that is;
// else those of a checkout.
std::string DefaultModelsRoot() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto installed = program.parent_path().parent_path() / "share/neuroshard/models";
  if (!error && std::filesystem::is_directory(installed, error)) return installed.string();
  return PlannerOptions().models_root;
}

}  // namespace

StatusOr<PlannerOptions> ReadPlannerOptions(const std::string& path) {
  PlannerOptions options;
  NS_RETURN_IF_ERROR(ReadFile(path, options));
  return options;
}

Violations FaultsOfStart(const PlannerOptions& options) {
  Violations faults;
  AddFaultsOfStart(options.rpc, faults);
  if (options.metrics_stated) {
    AddFaultIfTaken("metrics_listen", options.metrics_listen, faults);
  }
  std::error_code error;
  if (!std::filesystem::is_directory(options.models_root, error)) {
    faults.Add("models.root", "no such directory: {} (an empty one will do)",
               Quoted(options.models_root));
  }
  return faults;
}

std::variant<PlannerOptions, int> ParsePlannerCommandLine(
    int argc, const char* const* argv,
    const std::function<Status(const PlannerOptions&)>& try_models) {
  CLI::App app(
      "NeuroShard planner: answers ShardPlan RPCs with plans searched against cost models. SIGTERM "
      "or SIGINT drains, SIGHUP looks for new models and reads log_level of --config again.",
      "neuroshard-planner");
  app.footer(kExitCodesText);
  ServerCommandLine line;
  std::string models;
  bool accept_unusable = false;
  AddServerOptions(app, line);
  const auto* models_flag = app.add_option("--models", models, "Root of the model repository")
                                ->type_name("ROOT")
                                ->envname("NEUROSHARD_MODELS");
  app.add_flag("--accept-unusable-models", accept_unusable,
               "Serve cost models that are marked as unusable, with a warning");
  std::string until_unlocked;
  app.add_option("--until-unlocked", until_unlocked,
                 "Drain, as on SIGTERM, once no process has a lock (flock) on the file any more")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  if (const auto ended = ParseCommandLine(app, argc, argv, std::cout, std::cerr)) return *ended;

  PlannerOptions options;
  options.models_root = DefaultModelsRoot();
  const Status read = line.config.empty() ? absl::OkStatus() : ReadFile(line.config, options);
  if (models_flag->count() > 0) options.models_root = models;
  if (accept_unusable) options.accept_unusable_models = true;
  options.until_unlocked = until_unlocked;
  if (!line.listen.empty()) options.rpc.listen = line.listen;
  if (line.insecure) options.rpc.insecure = true;
  if (line.metrics) {
    options.metrics_listen = *line.metrics;
    options.metrics_stated = true;
  }
  options.config = ConfigAtStart(line);
  if (!line.log_level.empty()) options.log.level = line.log_level;
  if (!line.log_format.empty()) options.log.format = *FromText<LogFormat>(line.log_format);
  const auto ended = CheckServerStart(app.get_name(), line, read, [&] {
    Violations faults = FaultsOfStart(options);
    std::error_code error;
    if (!read.ok() || !std::filesystem::is_directory(options.models_root, error)) return faults;
    if (const Status loaded = try_models(options); !loaded.ok()) {
      faults.Add("models", Message(loaded));
    }
    return faults;
  });
  if (ended.has_value()) return *ended;
  return options;
}

void LogOptionsInForce(const PlannerOptions& options, const Logger& logger) {
  WithOptions(options.rpc, logger)
      .Info("options",
            {{"metrics_listen", options.metrics_listen},
             {"log_level", options.log.level},
             {"log_format", ToText(options.log.format)},
             {"rpc.max_search_threads_in_flight",
              options.service_limits.max_search_threads_in_flight},
             {"rpc.max_request_memory_bytes", options.service_limits.max_request_memory_bytes},
             {"rpc.write_timeout_ms", options.service_limits.write_timeout.count()},
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
             {"limits.max_search_ms", options.max_search_ms},
             {"quotas.requests", options.quotas.requests},
             {"quotas.search_seconds", options.quotas.search_seconds},
             {"quotas.window_s", options.quotas.window_s},
             {"quotas.max_callers", options.quotas.max_callers}});
}

}  // namespace neuroshard
