// Options of neuroshard-planner: defaults here, a YAML file over them, flags over both.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>

#include "common/base/status.h"
#include "common/base/violations.h"
#include "common/cli/server_command_line.h"
#include "common/codec/request_codec.h"
#include "common/observe/logger.h"
#include "common/rpc/rpc_server.h"
#include "server/service/planner_service.h"

namespace neuroshard {

// Options of neuroshard-planner, with their defaults (configs/planner.yaml).
struct PlannerOptions {
  RpcServerOptions rpc{.listen = "127.0.0.1:50051"};
  std::string metrics_listen = "127.0.0.1:9464";  // empty: no metrics are served
  bool metrics_stated = false;                    // else another port will do
  LogOptions log;
  ConfigAtStart config;
  std::string models_root = "configs/models";
  std::string default_model;            // empty: as ModelRepositoryOptions has it
  bool accept_unusable_models = false;  // serve what is marked as unusable
  std::string until_unlocked;           // file; empty: no lock ends the planner
  std::int64_t model_poll_ms = 2'000;   // 0: only SIGHUP reloads
  RequestLimits limits{.max_search_threads = 8};
  std::int64_t max_search_ms = 300'000;  // then the best plan so far is the answer
  PlannerServiceLimits service_limits;   // of all calls in flight
  CallerQuotaOptions quotas;             // of one caller
};

// Keys as in configs/planner.yaml. NOT_FOUND or INVALID_ARGUMENT with every fault.
StatusOr<PlannerOptions> ReadPlannerOptions(const std::string& path);

// What keeps a planner with these options from starting on this host now, by keys of the file.
Violations FaultsOfStart(const PlannerOptions& options);

// The options, or the exit code after --help and --check-config (0) or for a wrong command line or
// file (2), about which everything has been printed. `try_models` is a part of --check-config:
// whether the models can be loaded.
std::variant<PlannerOptions, int> ParsePlannerCommandLine(
    int argc, const char* const* argv,
    const std::function<Status(const PlannerOptions&)>& try_models);

// The options in force, for the log.
void LogOptionsInForce(const PlannerOptions& options, const Logger& logger);

}  // namespace neuroshard
