// The GPUs of this host as devices of the worker.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "worker/device/device_inventory.h"

namespace neuroshard {

// One a GPU, each with collectives by NCCL. UNAVAILABLE says why there are none: no driver, no GPU,
// no NCCL; FAILED_PRECONDITION when this binary was built without CUDA.
StatusOr<std::vector<DeviceSpec>> CudaDeviceSpecs();

}  // namespace neuroshard
