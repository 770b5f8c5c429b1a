#include "worker/device_specs.h"

#include <memory>

#include "kernels/gloo/gloo_backend.h"

namespace neuroshard {

StatusOr<std::vector<DeviceSpec>> MakeDeviceSpecs(const WorkerOptions& options) {
  switch (options.backend) {
    case WorkerBackend::kCpu:
      return CpuDeviceSpecs(options.cpu, std::make_shared<const GlooBackend>(GlooOptions{
                                             .hostname = options.collective.host,
                                             .network_interface = options.collective.interface}));
    case WorkerBackend::kCuda:
      return FailedPrecondition(
          "this neuroshard-worker was built without the cuda backend; use "
          "--backend cpu");
  }
  return Internal("no such backend");
}

}  // namespace neuroshard
