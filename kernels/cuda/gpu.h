// Gpu: memory, copies and launches, as the embedding op needs them. Two implementations: CUDA
// (cuda_gpu.h) and, for tests on machines without a GPU, a loop over the blocks and threads of each
// launch (testing/sequential_gpu.h). GpuBuffer owns a block of memory that kernels reach.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>

#include "common/base/status.h"
#include "kernels/cuda/launches.h"

namespace neuroshard::cuda {

// Anything that a Gpu launches.
using GpuLaunch =
    std::variant<FillLaunch, LookupLaunch, PoolLaunch, GatherLaunch, SegmentLaunch, KeyLaunch,
                 SortLaunch, UpdateLaunch, CacheKeyLaunch, DistinctLaunch, CacheUse>;

// Launches run in order and return at once; what goes wrong in one is told by status(). One caller
// at a time.
class Gpu {
 public:
  virtual ~Gpu() = default;

  // RESOURCE_EXHAUSTED quotes what was asked for and what there is. Aligned to 256 bytes.
  virtual StatusOr<std::byte*> Allocate(std::int64_t bytes) = 0;
  virtual void Free(std::byte* memory) = 0;
  virtual std::int64_t AvailableBytes() const = 0;
  // Memory of the host, which kernels reach at the same addresses.
  virtual StatusOr<std::byte*> AllocateOnHost(std::int64_t bytes) = 0;
  virtual void FreeOnHost(std::byte* memory) = 0;
  virtual std::int64_t AvailableHostBytes() const = 0;

  // Copies from or to memory of either kind, after everything launched before. They return when the
  // copy is done.
  virtual Status CopyIn(void* device, const void* host, std::int64_t bytes) = 0;
  virtual Status CopyOut(void* host, const void* device, std::int64_t bytes) = 0;

  virtual void Launch(const GpuLaunch& launch) = 0;
  // The scratch that a sort needs, whose arrays need not be there yet.
  virtual StatusOr<std::int64_t> ScratchBytes(const SortLaunch& sort) = 0;
  virtual StatusOr<std::int64_t> ScratchBytes(const DistinctLaunch& sort) = 0;

  // The first error of a launch or copy; the device cannot be used any more after one.
  virtual Status status() const = 0;
};

// Whose memory kernels reach: the device's own, or the host's over the bus.
enum class MemoryOf { kDevice, kHost };

// Memory that grows and is freed with its owner. Not for concurrent use.
class GpuBuffer {
 public:
  explicit GpuBuffer(std::shared_ptr<Gpu> gpu, MemoryOf of = MemoryOf::kDevice)
      : gpu_(std::move(gpu)), of_(of) {}
  ~GpuBuffer() { Release(); }
  GpuBuffer(GpuBuffer&&) = delete;

  // At least `bytes`; the content is lost when it was smaller. RESOURCE_EXHAUSTED leaves it empty.
  Status Reserve(std::int64_t bytes) {
    if (bytes <= bytes_) return absl::OkStatus();
    Release();
    NS_ASSIGN_OR_RETURN(
        data_, of_ == MemoryOf::kDevice ? gpu_->Allocate(bytes) : gpu_->AllocateOnHost(bytes));
    bytes_ = bytes;
    return absl::OkStatus();
  }

  template <typename T = std::byte>
  T* at(std::int64_t place) const {
    return reinterpret_cast<T*>(data_ + place);
  }
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
