#include "worker/device_specs.h"

#include <memory>
#include <utility>

#include "kernels/gloo/gloo_backend.h"
#include "worker/device/cuda_devices.h"

namespace neuroshard {
namespace {

std::vector<DeviceSpec> MakeCpuDeviceSpecs(const WorkerOptions& options) {
  return CpuDeviceSpecs(options.cpu, std::make_shared<const GlooBackend>(GlooOptions{
                                         .hostname = options.collective.host,
                                         .network_interface = options.collective.interface}));
}

}  // namespace

StatusOr<ChosenDevices> ChooseDevices(const WorkerOptions& options) {
  if (options.backend == WorkerBackend::kCpu) return ChosenDevices{MakeCpuDeviceSpecs(options), ""};
  StatusOr<std::vector<DeviceSpec>> gpus = CudaDeviceSpecs();
  if (gpus.ok()) return ChosenDevices{*std::move(gpus), ""};
  if (options.backend == WorkerBackend::kCuda) return gpus.status();
  return ChosenDevices{MakeCpuDeviceSpecs(options), Message(gpus.status())};
}

}  // namespace neuroshard
