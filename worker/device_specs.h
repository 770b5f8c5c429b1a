// The devices that the configured backend makes.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "worker/device/device_inventory.h"
#include "worker/worker_options.h"

namespace neuroshard {

// FAILED_PRECONDITION when this binary was built without the backend.
StatusOr<std::vector<DeviceSpec>> MakeDeviceSpecs(const WorkerOptions& options);

}  // namespace neuroshard
