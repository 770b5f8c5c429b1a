// neuroshard-planner: the wiring and nothing else.
#include <fcntl.h>
#include <malloc.h>
#include <prometheus/registry.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>

#include "common/base/build_info.h"
#include "common/cli/server_command_line.h"
#include "common/codec/message_text.h"
#include "common/observe/metrics_exporter.h"
#include "common/rpc/process_signals.h"
#include "common/rpc/rpc_server.h"
#include "server/cost/analytic/analytic_cost_model.h"
#include "server/model_watcher.h"
#include "server/models/model_repository.h"
#include "server/networks/network_cost_model.h"
#include "server/options.h"
#include "server/planner/planner.h"
#include "server/planner/thread_runner.h"
#include "server/search/run_search.h"
#include "server/service/planner_service.h"

namespace neuroshard {
namespace {

// Searches take and return tables of 128 KiB to some MiB on many threads. glibc learns from the
// first of them to keep such memory in its arenas: 75 MiB after 30,000 calls of all kinds, 5 of
// them in use. A threshold that is stated is not learnt, and what is larger goes back at once.
void ReturnLargeMemory() {
  if (std::getenv("MALLOC_MMAP_THRESHOLD_") == nullptr) mallopt(M_MMAP_THRESHOLD, 128 * 1024);
}

// The users of the planner hold the lock together, each for itself. The kernel takes it from those
// that end, however they do; the planner then has it alone, until it has ended too.
void EndWhenUnlocked(const std::string& file) {
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  std::thread([fd] {
    flock(fd, LOCK_EX);
    kill(getpid(), SIGTERM);
  }).detach();
}

StatusOr<std::unique_ptr<ModelRepository>> LoadModels(const PlannerOptions& options) {
  return ModelRepository::Create({options.models_root,
                                  options.default_model,
                                  {MakeAnalyticCostModel()},
                                  options.accept_unusable_models},
                                 LoadCostModel);
}

Status RunPlanner(const PlannerOptions& options) {
  NS_RETURN_IF_ERROR(FaultsOfStart(options).ToStatus());
  NS_ASSIGN_OR_RETURN(const auto logger, Logger::Create(options.log));
  logger->Info("starting", {{"version", BuildVersion()}, {"commit", BuildGitCommit()}});
  LogOptionsInForce(options, *logger);
  const SteadyClock clock;
  const auto registry = std::make_shared<prometheus::Registry>();
  RpcMetrics rpc_metrics(*registry);
  PlannerMetrics planner_metrics(*registry);
  NS_ASSIGN_OR_RETURN(const auto exporter,
                      MetricsExporter::StartForServer(options.metrics_listen,
                                                      options.metrics_stated, registry, *logger));
  NS_ASSIGN_OR_RETURN(const auto models, LoadModels(options));
  ModelWatcher watcher(*models, std::chrono::milliseconds(options.model_poll_ms), *logger,
                       planner_metrics);
  const ThreadRunner threads;
  const Planner planner(
      [&models](const PlanRequest& request) { return models->Current()->FindFor(request); },
      SearchOn(threads), clock,
      [&models](const std::string& name) { return models->Current()->VersionsOf(name); });
  CallerQuotas quotas(options.quotas, clock);
  RpcGate gate(options.rpc.max_in_flight, clock, rpc_metrics, *logger, &quotas);
  PlannerServiceImpl service(
      {planner, *models, gate, clock, *logger, planner_metrics, options.limits,
       std::chrono::milliseconds(options.max_search_ms), options.service_limits,
       [&](const std::string& name, int version, std::optional<double> share) {
         auto channel = models->Serve(name, version, share);
         if (channel.ok()) watcher.ReloadNow();
         return channel;
       }});
  NS_ASSIGN_OR_RETURN(
      const auto server,
      RpcServer::Start(options.rpc, {{v1::PlannerService::service_full_name(), &service}}, gate));
  const SignalThread signals({.on_terminate =
                                  [&] {
                                    logger->Info("draining", {{"in_flight", gate.in_flight()}});
                                    if (exporter != nullptr) exporter->SetReady(false);
                                    server->RequestDrain();
                                  },
                              .on_hangup =
                                  [&] {
                                    options.config.ReloadLogLevel(*logger);
                                    watcher.ReloadNow();
                                  }});
  watcher.OnDefaultModel([&](bool there) {
    server->SetReady(v1::PlannerService::service_full_name(), there);
    if (exporter != nullptr) exporter->SetReady(there && !gate.draining().ShouldStop());
  });
  if (exporter != nullptr) {
    exporter->SetStatus("neuroshard-planner at " + server->address(),
                        [&service] { return MessageToJson(service.CurrentStatus()); });
  }
  if (!options.until_unlocked.empty()) EndWhenUnlocked(options.until_unlocked);
  WarnIfOpen(options.rpc, *logger);
  logger->Info("serving", {{"address", server->address()}});
  std::cout << "listening on " << server->address() << std::endl;
  server->Wait();
  if (exporter != nullptr) exporter->SetStatus("", nullptr);
  watcher.OnDefaultModel(nullptr);
  logger->Info("stopped");
  return absl::OkStatus();
}

}  // namespace
}  // namespace neuroshard

int main(int argc, char** argv) {
  using namespace neuroshard;
  ReturnLargeMemory();
  CatchProcessSignals();
  const auto parsed = ParsePlannerCommandLine(
      argc, argv, [](const PlannerOptions& options) { return LoadModels(options).status(); });
  if (const int* exit_code = std::get_if<int>(&parsed)) return *exit_code;
  const auto& options = std::get<PlannerOptions>(parsed);
  const Status status = RunPlanner(options);
  return status.ok() ? 0 : ReportFailedStart("neuroshard-planner", options.log, status);
}
