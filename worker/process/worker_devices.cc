#include "worker/process/worker_devices.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <utility>

#include "common/base/clock.h"
#include "kernels/machine/machine.h"
#include "kernels/tcp/tcp_backend.h"
#include "worker/device/cuda_devices.h"
#include "worker/process/device_messages.h"

namespace neuroshard {
namespace {

// NCCL finds its interface by itself unless it is told one; an operator's own word stands.
StatusOr<std::vector<DeviceSpec>> MakeCudaDeviceSpecs(const CollectiveOptions& options) {
  NS_ASSIGN_OR_RETURN(const LocalAddress local, FindLocalAddress(options.host, options.interface));
  if (!local.interface.empty()) {
    setenv("NCCL_SOCKET_IFNAME", ("=" + local.interface).c_str(), /*replace=*/0);
  }
  return CudaDeviceSpecs(options.networks.empty() ? std::vector{local.network} : options.networks);
}

}  // namespace

StatusOr<ChosenDevices> ChooseDevices(const WorkerOptions& options) {
  ChosenDevices chosen{.specs = {}, .why_not_cuda = "", .options = options};
  if (options.backend != WorkerBackend::kCpu) {
    StatusOr<std::vector<DeviceSpec>> gpus = MakeCudaDeviceSpecs(options.collective);
    if (gpus.ok()) {
      chosen.specs = *std::move(gpus);
      chosen.options.backend = WorkerBackend::kCuda;
      return chosen;
    }
    if (options.backend == WorkerBackend::kCuda) return gpus.status();
    chosen.why_not_cuda = Message(gpus.status());
  }
  chosen.options.backend = WorkerBackend::kCpu;
  if (options.cpu.memory_bytes == 0) {
    chosen.options.cpu.memory_bytes = FairCpuMemoryBytes(AvailableMemoryBytes(), options.cpu.count);
  }
  chosen.specs = CpuDeviceSpecs(chosen.options.cpu,
                                std::make_shared<const TcpBackend>(chosen.options.collective));
  return chosen;
}

StatusOr<StartedDevices> StartDevices(const WorkerOptions& options,
                                      const DeviceProcess::DeathObserver& observer) {
  NS_ASSIGN_OR_RETURN(const ChosenDevices chosen, ChooseDevices(options));
  // The number among the usable devices, by the number among the chosen.
  auto numbers = std::make_shared<std::vector<std::atomic<int>>>(chosen.specs.size());
  const DeviceProcess::DeathObserver renumbered = [observer, numbers](int device,
                                                                      const std::string& how) {
    if (observer) observer((*numbers)[static_cast<std::size_t>(device)], how);
  };
  std::vector<std::future<StatusOr<std::unique_ptr<DeviceProcess>>>> starting;
  for (std::size_t i = 0; i < chosen.specs.size(); ++i) {
    starting.push_back(std::async(std::launch::async, [&, i] {
      return DeviceProcess::Start({.device = EncodeOpenDevice(chosen.options, static_cast<int>(i))},
                                  renumbered);
    }));
  }
  std::vector<StatusOr<std::unique_ptr<DeviceSession>>> opened;
  int usable = 0;
  for (std::size_t i = 0; i < starting.size(); ++i) {
    auto device = starting[i].get();
    (*numbers)[i] = usable;
    if (device.ok()) ++usable;
    opened.emplace_back(std::move(device));
  }
  NS_ASSIGN_OR_RETURN(
      StartedDevices started,
      KeepUsable(std::move(opened), chosen.options.backend == WorkerBackend::kCuda));
  started.why_not_cuda = chosen.why_not_cuda;
  return started;
}

Status TryDevices(const WorkerOptions& options) {
  NS_ASSIGN_OR_RETURN(const ChosenDevices chosen, ChooseDevices(options));
  if (chosen.options.backend == WorkerBackend::kCuda) return absl::OkStatus();
  return chosen.specs.front().create().status();  // all CPU devices are alike
}

StatusOr<StartedDevices> KeepUsable(std::vector<StatusOr<std::unique_ptr<DeviceSession>>> opened,
                                    bool may_leave_out) {
  StartedDevices started;
  Status first;
  for (std::size_t i = 0; i < opened.size(); ++i) {
    if (opened[i].ok()) {
      started.devices.push_back(*std::move(opened[i]));
      continue;
    }
    const Status fault = Annotate(opened[i].status(), fmt::format("device {}", i));
    if (first.ok()) first = fault;
    started.left_out.push_back(Message(fault));
  }
  if (!first.ok() && (started.devices.empty() || !may_leave_out)) return first;
  return started;
}

StatusOr<std::unique_ptr<DeviceSession>> OpenDeviceHere(const internal::OpenDevice& request) {
  // These live as long as the process.
  static const SteadyTimekeeper time;
  static const RecordStamp stamp(IdentifyHost(), UnixMillisecondsNow);
  NS_ASSIGN_OR_RETURN(const WorkerOptions options, DecodeOpenDevice(request));
  NS_ASSIGN_OR_RETURN(const ChosenDevices chosen, ChooseDevices(options));
  if (request.index() < 0 || request.index() >= static_cast<int>(chosen.specs.size())) {
    return Unavailable("there are only {} devices now", chosen.specs.size());
  }
  return LocalDeviceSession::Open(chosen.specs[request.index()], stamp, time);
}

}  // namespace neuroshard
