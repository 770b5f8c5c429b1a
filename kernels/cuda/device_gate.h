// DeviceGate: holds back the work enqueued on a device until all of it is enqueued, so that gaps
// between the host's launches are not timed.
#pragma once

#include <chrono>
#include <memory>

#include "common/base/status.h"
#include "kernels/cuda/cuda_gpu.h"

namespace neuroshard::cuda {

// A kernel that waits for a number in the host's memory. While a gate is closed the caller must not
// do what waits for the device (cudaMalloc, cudaFree, the first launch of a kernel that is loaded
// lazily); if it does, the limit ends the wait.
class DeviceGate {
 public:
  explicit DeviceGate(std::shared_ptr<CudaGpu> gpu) : gpu_(std::move(gpu)) {}
  ~DeviceGate();
  DeviceGate(DeviceGate&&) = delete;

  Status Prepare();  // once, before the others

  // What is enqueued on the device's stream from now on begins when the gate opens, or after
  // `limit`. A gate that was closed before must have been passed.
  void Close(std::chrono::nanoseconds limit);
  // Whether the work was held back until now: false when the gate was open, or its limit may have
  // passed.
  bool Open();

 private:
  std::shared_ptr<CudaGpu> gpu_;
  int* opened_ = nullptr;  // mapped host memory
  std::chrono::steady_clock::time_point opens_by_itself_;
};

}  // namespace neuroshard::cuda
