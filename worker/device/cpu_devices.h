// The CPU of this host as embedding devices.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/api/collective.h"
#include "worker/device/local_device_session.h"

namespace neuroshard {

// Number, memory and pinning of the CPU devices.
struct CpuDevicesOptions {
  int count = 1;
  // The memory of each device. 0 in the worker's options: FairCpuMemoryBytes of what the host has
  // available when it starts.
  std::int64_t memory_bytes = 0;
  // Keeps the thread of device i on one core: number first_core + i (modulo their number) of those
  // that the process may use. Off by default, because two workers on one host would pin themselves
  // onto the same cores.
  bool pin_threads = false;
  int first_core = 0;
};

// A third of `available_bytes` split over the devices, at most 8 GiB each: the generated ids are
// held twice beside what the device accounts for, and other workers may share the host.
std::int64_t FairCpuMemoryBytes(std::int64_t available_bytes, int count);

// `collectives` must not be null by the time the devices are made.
std::vector<DeviceSpec> CpuDeviceSpecs(const CpuDevicesOptions& options,
                                       std::shared_ptr<const CollectiveBackend> collectives);

}  // namespace neuroshard
