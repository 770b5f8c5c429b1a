// A block of memory of a GPU, or of its host, that is freed with its owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/cuda/gpu.h"

namespace neuroshard::cuda {

// Whose memory kernels reach: the device's own, or the host's over the bus.
enum class MemoryOf { kDevice, kHost };

// Memory that grows and is freed with its owner. Not for concurrent use.
class GpuBuffer {
 public:
  explicit GpuBuffer(std::shared_ptr<Gpu> gpu, MemoryOf of = MemoryOf::kDevice)
      : gpu_(std::move(gpu)), of_(of) {}
  ~GpuBuffer() { Release(); }
  GpuBuffer(const GpuBuffer&) = delete;
  GpuBuffer& operator=(const GpuBuffer&) = delete;

  // At least `bytes`; the content is lost when it was smaller. RESOURCE_EXHAUSTED leaves it empty.
  Status Reserve(std::int64_t bytes) {
    if (bytes <= bytes_) return absl::OkStatus();
    Release();
    NS_ASSIGN_OR_RETURN(
        data_, of_ == MemoryOf::kDevice ? gpu_->Allocate(bytes) : gpu_->AllocateOnHost(bytes));
    bytes_ = bytes;
    return absl::OkStatus();
  }

  std::byte* at(std::int64_t place) const { return data_ + place; }
  std::int64_t bytes() const { return bytes_; }

 private:
  void Release() {
    std::byte* const data = std::exchange(data_, nullptr);
    bytes_ = 0;
    if (data == nullptr) return;
    if (of_ == MemoryOf::kDevice) {
      gpu_->Free(data);
    } else {
      gpu_->FreeOnHost(data);
    }
  }

  std::shared_ptr<Gpu> gpu_;
  const MemoryOf of_;
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace neuroshard::cuda
