#include "kernels/cuda/device_gate.h"

#include <atomic>

#include "kernels/cuda/kernel_launches.h"

namespace neuroshard::cuda {

DeviceGate::~DeviceGate() {
  if (opened_ == nullptr) return;
  Open();  // freeing waits for the device
  gpu_->Use();
  (void)cudaFreeHost(opened_);
}

Status DeviceGate::Prepare() {
  gpu_->Use();
  void* memory = nullptr;
  NS_RETURN_IF_ERROR(
      CudaStatus(cudaHostAlloc(&memory, sizeof(int), cudaHostAllocMapped), "mapped memory"));
  opened_ = static_cast<int*>(memory);
  Open();
  return absl::OkStatus();
}

void DeviceGate::Close(std::chrono::nanoseconds limit) {
  std::atomic_ref<int>(*opened_).store(0);
  opens_by_itself_ = std::chrono::steady_clock::now() + limit;
  gpu_->Use();
  gpu_->Note(LaunchGate(opened_, static_cast<unsigned long long>(limit.count()), gpu_->stream()),
             "holding the device");
}

bool DeviceGate::Open() {
  const bool closed = std::atomic_ref<int>(*opened_).exchange(1) == 0;
  return closed && std::chrono::steady_clock::now() < opens_by_itself_;
}

}  // namespace neuroshard::cuda
