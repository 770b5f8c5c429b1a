// The devices of a worker, each in a process of its own: both ends of how they are made.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/process/device_process.h"
#include "worker/worker_options.h"

namespace neuroshard {

// Devices that are open.
struct StartedDevices {
  std::vector<std::unique_ptr<DeviceSession>> devices;
  std::string why_not_cuda;  // where `auto` took the CPU
};

// In the worker: chooses the devices (ChooseDevices) and starts their processes, all at once. The
// first failure, with its device's number.
StatusOr<StartedDevices> StartDevices(const WorkerOptions& options,
                                      DeviceProcess::DeathObserver observer);

// In a device's process: opens the device on a thread. For RunDeviceProcess.
StatusOr<std::unique_ptr<DeviceSession>> OpenDeviceHere(const internal::OpenDevice& request);

}  // namespace neuroshard
