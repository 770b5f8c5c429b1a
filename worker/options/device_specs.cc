#include "worker/options/device_specs.h"

#include <cstdlib>
#include <memory>
#include <utility>

#include "kernels/gloo/gloo_backend.h"
#include "kernels/machine/local_address.h"
#include "kernels/machine/machine.h"
#include "worker/device/cuda_devices.h"

namespace neuroshard {
namespace {

std::vector<DeviceSpec> MakeCpuDeviceSpecs(const WorkerOptions& options) {
  return CpuDeviceSpecs(options.cpu, std::make_shared<const GlooBackend>(GlooOptions{
                                         .hostname = options.collective.host,
                                         .network_interface = options.collective.interface,
                                         .networks = options.collective.networks}));
}

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
  chosen.specs = MakeCpuDeviceSpecs(chosen.options);
  return chosen;
}

}  // namespace neuroshard
