// The devices of a worker, each in a process of its own: both ends of how they are made.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/device/local_device_session.h"
#include "worker/options/worker_options.h"
#include "worker/process/device_process.h"

namespace neuroshard {

// The devices of a worker, before they are opened.
struct ChosenDevices {
  std::vector<DeviceSpec> specs;
  std::string why_not_cuda;  // where `auto` took the CPU
  WorkerOptions options;     // with what was chosen: kCpu or kCuda, the memory of a CPU device
};

// `auto`: the host's GPUs where they can be used, else the CPU. For `cuda`,
// FAILED_PRECONDITION when this binary was built without it, UNAVAILABLE (with the reason) when the
// host has none.
StatusOr<ChosenDevices> ChooseDevices(const WorkerOptions& options);

// Devices that are open. Their numbers are their places here, also where others were left out.
struct StartedDevices {
  std::vector<std::unique_ptr<DeviceSession>> devices;
  std::vector<std::string> left_out;  // what is wrong with each
  std::string why_not_cuda;           // where `auto` took the CPU
};

// Chooses the devices (ChooseDevices) and starts their processes, all at once; for the worker. A
// GPU that cannot be used is left out as long as there is another; otherwise the first failure,
// with its device's number. The observer is told the numbers of StartedDevices.
StatusOr<StartedDevices> StartDevices(const WorkerOptions& options,
                                      const DeviceProcess::DeathObserver& observer);

// What StartDevices would refuse, without opening a GPU.
Status TryDevices(const WorkerOptions& options);

// What StartDevices makes of devices that opened or did not.
StatusOr<StartedDevices> KeepUsable(std::vector<StatusOr<std::unique_ptr<DeviceSession>>> opened,
                                    bool may_leave_out);

// Opens the device on a thread; for a device's process (RunDeviceProcess).
StatusOr<std::unique_ptr<DeviceSession>> OpenDeviceHere(const internal::OpenDevice& request);

}  // namespace neuroshard
