#include "worker/device/cpu_devices.h"

#include <algorithm>
#include <optional>

#include "common/base/bytes.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/machine/machine.h"

namespace neuroshard {

std::int64_t FairCpuMemoryBytes(std::int64_t available_bytes, int count) {
  return std::clamp(available_bytes / 3 / count, 16 * kMiB, 8 * kGiB);
}

std::vector<DeviceSpec> CpuDeviceSpecs(const CpuDevicesOptions& options,
                                       std::shared_ptr<const CollectiveBackend> collectives) {
  const std::vector<int> cores = UsableCpus();
  std::vector<DeviceSpec> specs;
  for (int i = 0; i < options.count; ++i) {
    std::optional<int> core;
    if (options.pin_threads && !cores.empty()) {
      core = cores[static_cast<std::size_t>(options.first_core + i) % cores.size()];
    }
    specs.push_back({.create = [bytes = options.memory_bytes,
                                collectives]() -> StatusOr<std::unique_ptr<DeviceBackend>> {
                       return CpuDevice::Create(bytes, collectives);
                     },
                     .core = core});
  }
  return specs;
}

}  // namespace neuroshard
