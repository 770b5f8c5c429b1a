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

StatusOr<std::vector<DeviceSpec>> MakeDeviceSpecs(const WorkerOptions& options) {
  switch (options.backend) {
    case WorkerBackend::kCpu:
      return MakeCpuDeviceSpecs(options);
    case WorkerBackend::kCuda:
      return CudaDeviceSpecs();
    case WorkerBackend::kAuto:
      break;
  }
  StatusOr<std::vector<DeviceSpec>> gpus = CudaDeviceSpecs();
  return gpus.ok() ? std::move(gpus) : MakeCpuDeviceSpecs(options);
}

}  // namespace neuroshard
