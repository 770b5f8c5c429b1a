// The GPUs of this host as devices of the worker.
#pragma once

#include <vector>

#include "common/base/ip_network.h"
#include "common/base/status.h"
#include "worker/device/local_device_session.h"

namespace neuroshard {

// One a GPU, with collectives by NCCL; where that cannot be loaded, opening a group says so.
// Their groups connect to the given networks alone. UNAVAILABLE when there is no usable GPU,
// FAILED_PRECONDITION when this binary was built without CUDA.
StatusOr<std::vector<DeviceSpec>> CudaDeviceSpecs(const std::vector<IpNetwork>& networks);

}  // namespace neuroshard
