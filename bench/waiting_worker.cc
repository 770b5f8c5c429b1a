// waiting_worker MILLISECONDS FOLDER: a worker of one device whose every timed stage only waits, so
// that many of them fit one machine and what is left of a sweep is its scheduling. All but the
// device is the worker's own: RPC service, lease, the device's process. That process writes a line
// "BEGIN END" a stage (steady clock, ms) to FOLDER/PID.
#include <prometheus/registry.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <thread>

#include "common/rpc/process_signals.h"
#include "common/rpc/rpc_server.h"
#include "tests/support/fake_device_backend.h"
#include "worker/device/local_device_session.h"
#include "worker/process/device_process.h"
#include "worker/process/device_server.h"
#include "worker/service/worker_service.h"

namespace neuroshard {
namespace {

using testing::FakeDeviceBackend;
using testing::FakeDeviceLog;
using testing::FakeDeviceScript;

constexpr const char* kMilliseconds = "WAITING_WORKER_MILLISECONDS";
constexpr const char* kFolder = "WAITING_WORKER_FOLDER";

double NowMs() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

StatusOr<std::unique_ptr<DeviceSession>> OpenWaitingDevice(const internal::OpenDevice&) {
  // For the life of the process.
  static const SteadyTimekeeper time;
  static const RecordStamp stamp(IdentifyHost(), [] { return std::int64_t{1}; });
  static FakeDeviceLog log;
  static FakeDeviceScript script;
  static std::ofstream stages(std::string(std::getenv(kFolder)) + "/" + std::to_string(getppid()));
  script.on_time = [wait = std::chrono::milliseconds(std::atoi(std::getenv(kMilliseconds)))] {
    const double begin = NowMs();
    std::this_thread::sleep_for(wait);
    stages << fmt::format("{:.3f} {:.3f}\n", begin, NowMs()) << std::flush;
  };
  return LocalDeviceSession::Open({.create = []() -> StatusOr<std::unique_ptr<DeviceBackend>> {
                                     return std::make_unique<FakeDeviceBackend>(script, log);
                                   },
                                   .core = std::nullopt},
                                  stamp, time);
}

Status Serve() {
  const SteadyClock clock;
  NS_ASSIGN_OR_RETURN(std::unique_ptr<DeviceProcess> device, DeviceProcess::Start({}));
  std::vector<std::unique_ptr<DeviceSession>> devices;
  devices.push_back(std::move(device));
  DeviceInventory inventory(std::move(devices));
  CommGroupRegistry groups(inventory, clock);
  NS_ASSIGN_OR_RETURN(const auto logger, Logger::Create({.level = "off"}));
  prometheus::Registry registry;
  RpcMetrics metrics(registry);
  RpcGate gate(16, clock, metrics, *logger);
  WorkerServiceImpl service({inventory, groups, IdentifyHost(), nullptr}, gate, clock, *logger, {});
  NS_ASSIGN_OR_RETURN(
      const std::unique_ptr<RpcServer> server,
      RpcServer::Start({}, {{v1::WorkerService::service_full_name(), &service}}, gate));
  const SignalThread signals(
      {.on_terminate = [&] { server->RequestDrain(); }, .on_hangup = nullptr});
  std::cout << "listening on " << server->address() << std::endl;
  server->Wait();
  return absl::OkStatus();
}

}  // namespace
}  // namespace neuroshard

int main(int argc, char** argv) {
  if (argc == 2 && argv[1] == std::string_view(neuroshard::kDeviceProcessArgument)) {
    neuroshard::RunDeviceProcess(neuroshard::OpenWaitingDevice);
  }
  if (argc != 3) {
    std::cerr << "usage: waiting_worker MILLISECONDS FOLDER\n";
    return 2;
  }
  setenv(neuroshard::kMilliseconds, argv[1], 1);
  setenv(neuroshard::kFolder, argv[2], 1);
  neuroshard::CatchProcessSignals();
  const neuroshard::Status status = neuroshard::Serve();
  if (status.ok()) return 0;
  std::cerr << "waiting_worker: " << neuroshard::Message(status) << "\n";
  return 1;
}
