// neuroshard-worker: the wiring, nothing else.
#include <prometheus/registry.h>

#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>

#include "common/base/build_info.h"
#include "common/base/periodic_thread.h"
#include "common/cli/server_command_line.h"
#include "common/codec/message_text.h"
#include "common/observe/metrics_exporter.h"
#include "common/rpc/process_signals.h"
#include "worker/process/device_server.h"
#include "worker/process/worker_devices.h"
#include "worker/service/worker_service.h"

namespace neuroshard {
namespace {

Status Serve(const WorkerOptions& options) {
  NS_RETURN_IF_ERROR(FaultsOfStart(options).ToStatus());
  NS_ASSIGN_OR_RETURN(const std::unique_ptr<Logger> logger, Logger::Create(options.log));
  logger->Info("starting", {{"version", BuildVersion()}, {"commit", BuildGitCommit()}});
  LogOptionsInForce(options, *logger);
  const auto registry = std::make_shared<prometheus::Registry>();
  RpcMetrics rpc_metrics(*registry);
  WorkerMetrics metrics(*registry);
  NS_ASSIGN_OR_RETURN(const auto exporter,
                      MetricsExporter::StartForServer(options.metrics_listen,
                                                      options.metrics_stated, registry, *logger));

  const SteadyClock clock;
  NS_ASSIGN_OR_RETURN(StartedDevices started,
                      StartDevices(options, [&](int device, const std::string& how) {
                        metrics.DeviceProcessDied(device);
                        logger->Error("device_process_died", {{"device", device}, {"how", how}});
                      }));
  for (const std::string& fault : started.left_out) {
    logger->Error("device_left_out", {{"reason", fault}});
  }
  if (!started.why_not_cuda.empty()) {
    const auto log = std::filesystem::exists("/dev/nvidia0") ? &Logger::Warn : &Logger::Info;
    ((*logger).*log)("cuda_not_used", {{"reason", started.why_not_cuda}});
  }
  DeviceInventory inventory(std::move(started.devices), [&metrics](int device, bool busy) {
    metrics.SetDeviceBusy(device, busy);
  });
  metrics.DeclareDevices(inventory.size());
  CommGroupRegistry groups(inventory, clock, [&metrics](int open) { metrics.SetOpenGroups(open); });
  const PeriodicThread reaper(std::chrono::milliseconds(500), [&] {
    for (const std::string& group : groups.CloseIdle()) {
      logger->Audit("comm_group_closed", {{"group", group}, {"reason", "idle"}});
    }
    groups.CutOffOverdueCalls();
  });
  RpcGate gate(options.rpc.max_in_flight, clock, rpc_metrics, *logger);
  WorkerServiceImpl service(
      {inventory, groups, IdentifyHost(), &metrics}, gate, clock, *logger,
      {.stream_idle_timeout = std::chrono::milliseconds(options.stream_idle_timeout_ms)});
  NS_ASSIGN_OR_RETURN(
      const std::unique_ptr<RpcServer> server,
      RpcServer::Start(options.rpc, {{v1::WorkerService::service_full_name(), &service}}, gate));
  const SignalThread signals({.on_terminate =
                                  [&] {
                                    logger->Info("draining", {{"in_flight", gate.in_flight()}});
                                    if (exporter != nullptr) exporter->SetReady(false);
                                    server->RequestDrain();
                                  },
                              .on_hangup = [&] { options.config.ReloadLogLevel(*logger); }});
  if (exporter != nullptr) {
    exporter->SetReady(true);
    exporter->SetStatus("neuroshard-worker at " + server->address(),
                        [&service] { return MessageToJson(service.Info()); });
  }
  WarnIfOpen(options.rpc, *logger);
  logger->Info("serving", {{"address", server->address()},
                           {"devices", inventory.size()},
                           {"backend", inventory.properties(0).backend},
                           {"collective_backend", inventory.properties(0).collective_backend}});
  std::cout << "listening on " << server->address() << std::endl;
  server->Wait();
  if (exporter != nullptr) exporter->SetStatus("", nullptr);
  logger->Info("stopped");
  return absl::OkStatus();
}

}  // namespace
}  // namespace neuroshard

int main(int argc, char** argv) {
  using namespace neuroshard;
  if (argc == 2 && std::string_view(argv[1]) == kDeviceProcessArgument) {
    RunDeviceProcess(OpenDeviceHere);
  }
  CatchProcessSignals();
  const WorkerCommand command = ParseWorkerCommandLine(argc, argv, TryDevices);
  if (command.exit_code.has_value()) return *command.exit_code;
  const Status status = Serve(command.options);
  return status.ok() ? 0 : ReportFailedStart("neuroshard-worker", command.options.log, status);
}
