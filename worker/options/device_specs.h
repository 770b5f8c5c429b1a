// The devices that the configured backend makes.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/device/local_device_session.h"
#include "worker/options/worker_options.h"

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

}  // namespace neuroshard
