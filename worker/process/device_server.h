// The child process that drives one device: its main function, and its calls.
#pragma once

#include <functional>
#include <memory>

#include "common/base/status.h"
#include "neuroshard/internal/device_process.pb.h"
#include "worker/device/device_executor.h"
#include "worker/device/device_session.h"

namespace neuroshard {

// Makes the device that the first call asks for.
using DeviceOpener =
    std::function<StatusOr<std::unique_ptr<DeviceSession>>(const internal::OpenDevice& request)>;

// The main function of the process: does what is asked over the descriptor kDeviceSocketFd, one
// call at a time, and never returns. Ends at once when the other end is closed, whatever it is
// doing, and with its parent; after a call that left the device unusable, once that is answered.
// Signals of a terminal are for the parent, and when the host runs out of memory this process goes
// first.
[[noreturn]] void RunDeviceProcess(const DeviceOpener& open);

inline constexpr int kDeviceSocketFd = 3;
// The hidden first argument that makes the worker's binary such a process.
inline constexpr const char* kDeviceProcessArgument = "--device-process";

}  // namespace neuroshard
