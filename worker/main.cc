// neuroshard-worker: the wiring, nothing else.
#include <prometheus/registry.h>

#include <atomic>
#include <chrono>
#include <iostream>

#include "common/observe/metrics_exporter.h"
#include "common/rpc/process_signals.h"
#include "worker/device_specs.h"
#include "worker/service/worker_service.h"

namespace neuroshard {
namespace {

std::int64_t UnixTimeMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Status Serve(const WorkerOptions& options) {
  NS_ASSIGN_OR_RETURN(const std::unique_ptr<Logger> logger, Logger::Create(options.log));
  logger->Info("starting", {{"version", IdentifyHost().worker_version},
                            {"commit", IdentifyHost().git_commit},
                            {"options", Describe(options)}});
  const auto registry = std::make_shared<prometheus::Registry>();
  RpcMetrics rpc_metrics(*registry);
  WorkerMetrics metrics(*registry);
  std::unique_ptr<MetricsExporter> exporter;
  if (!options.metrics_listen.empty()) {
    NS_ASSIGN_OR_RETURN(exporter, MetricsExporter::Start(options.metrics_listen, registry));
    logger->Info("metrics_listening", {{"address", exporter->address()}});
  }

  const SteadyTimekeeper time;
  const RecordStamp stamp(IdentifyHost(), UnixTimeMs);
  NS_ASSIGN_OR_RETURN(ChosenDevices devices, ChooseDevices(options));
  if (!devices.why_not_cuda.empty()) {
    logger->Info("cuda_not_used", {{"reason", devices.why_not_cuda}});
  }
  NS_ASSIGN_OR_RETURN(
      const std::unique_ptr<DeviceInventory> inventory,
      DeviceInventory::Create(std::move(devices.specs), [&metrics](int device, bool busy) {
        metrics.SetDeviceBusy(device, busy);
      }));
  CommGroupRegistry groups(*inventory, time, [&metrics](int open) { metrics.SetOpenGroups(open); });
  const CommGroupReaper reaper(groups, std::chrono::milliseconds(500));
  Profiler profiler(*inventory, groups, stamp, time, &metrics);

  RpcGate gate(options.rpc.max_in_flight, time, &rpc_metrics);
  WorkerServiceImpl service(
      profiler, gate, time, *logger,
      {.stream_idle_timeout = std::chrono::milliseconds(options.stream_idle_timeout_ms)});
  NS_ASSIGN_OR_RETURN(
      const std::unique_ptr<RpcServer> server,
      RpcServer::Start(options.rpc, {{v1::WorkerService::service_full_name(), &service}}, gate));
  std::atomic<bool> device_failed = false;
  inventory->SetFailureObserver([&](int device, const Status& error) {
    logger->Error("device_failed", {{"device", device}, {"error", Message(error)}});
    device_failed = true;
    server->RequestDrain();
  });
  const SignalThread signals(
      {.on_terminate = [&server] { server->RequestDrain(); }, .on_hangup = nullptr});

  std::cout << "listening on " << server->address() << std::endl;
  logger->Info("serving", {{"address", server->address()},
                           {"devices", inventory->size()},
                           {"backend", inventory->properties(0).backend},
                           {"collective_backend", inventory->properties(0).collective_backend}});
  server->Wait();
  inventory->SetFailureObserver(nullptr);
  logger->Info("stopped");
  if (device_failed) return Internal("a device failed; only a new process can use it again");
  return absl::OkStatus();
}

}  // namespace
}  // namespace neuroshard

int main(int argc, char** argv) {
  neuroshard::CatchProcessSignals();
  const neuroshard::WorkerCommand command = neuroshard::ParseWorkerCommandLine(argc, argv);
  if (command.exit_code.has_value()) return *command.exit_code;
  const neuroshard::Status status = neuroshard::Serve(command.options);
  if (status.ok()) return 0;
  std::cerr << "neuroshard-worker: " << neuroshard::Message(status) << "\n";
  return 1;
}
