// Messages between a worker and the process that drives a device, and the values of a DeviceSession
// in them. On the socket pair a message is its length in four bytes, the lowest first, then its
// bytes.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "common/base/file_descriptor.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "google/rpc/status.pb.h"
#include "kernels/api/device_backend.h"
#include "neuroshard/internal/device_process.pb.h"
#include "worker/device/device_session.h"
#include "worker/options/worker_options.h"

namespace neuroshard {

// One end of the socket pair. Sending and receiving may go on at the same time, and several may
// send.
class MessageSocket {
 public:
  // The longest message; the records of the longest series take a hundredth of it.
  static constexpr std::size_t kMaxBytes = std::size_t{256} << 20;

  explicit MessageSocket(FileDescriptor fd) : fd_(std::move(fd)) {}

  // Blocks until the other end's buffer has it. UNAVAILABLE when the other end is gone.
  Status Send(const std::string& message);
  // UNAVAILABLE when the other end is gone, INTERNAL when what comes is no message.
  StatusOr<std::string> Receive();
  // Whether Receive has something to say; false after `wait`.
  bool WaitForMessage(std::chrono::milliseconds wait) const;

 private:
  Status ReceiveBytes(char* bytes, std::size_t count);

  const FileDescriptor fd_;
  Mutex send_mutex_;
};

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
