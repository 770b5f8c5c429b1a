// Values of a DeviceSession <-> messages between a worker and the process that drives the device.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "google/rpc/status.pb.h"
#include "kernels/api/device_backend.h"
#include "neuroshard/internal/device_process.pb.h"
#include "worker/device/device_session.h"
#include "worker/options/worker_options.h"

namespace neuroshard {

// Options that leave nothing to choose: the backend is not kAuto, the memory not 0.
internal::OpenDevice EncodeOpenDevice(const WorkerOptions& options, int index);
// The options alone. INVALID_ARGUMENT for what the other function does not write.
StatusOr<WorkerOptions> DecodeOpenDevice(const internal::OpenDevice& message);

// What the parent needs to know of a device.
internal::DeviceDescription EncodeProperties(const DeviceProperties& properties);
DeviceProperties DecodeProperties(const internal::DeviceDescription& message);

google::rpc::Status EncodeStatus(const Status& status);
Status DecodeStatus(const google::rpc::Status& message);

}  // namespace neuroshard
