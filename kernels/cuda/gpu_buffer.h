// A block of device memory that is freed with its owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/cuda/gpu.h"

namespace neuroshard::cuda {

// Device memory that grows and is freed with its owner. Not for concurrent use.
class GpuBuffer {
 public:
  explicit GpuBuffer(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {}
  ~GpuBuffer() { Release(); }
  GpuBuffer(const GpuBuffer&) = delete;
  GpuBuffer& operator=(const GpuBuffer&) = delete;

  // At least `bytes`; the content is lost when it was smaller. RESOURCE_EXHAUSTED leaves it empty.
  Status Reserve(std::int64_t bytes) {
    if (bytes <= bytes_) return absl::OkStatus();
    Release();
    NS_ASSIGN_OR_RETURN(data_, gpu_->Allocate(bytes));
    bytes_ = bytes;
    return absl::OkStatus();
  }

  std::byte* at(std::int64_t place) const { return data_ + place; }
  std::int64_t bytes() const { return bytes_; }

 private:
  void Release() {
    if (data_ != nullptr) gpu_->Free(std::exchange(data_, nullptr));
    bytes_ = 0;
  }

  std::shared_ptr<Gpu> gpu_;
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace neuroshard::cuda
