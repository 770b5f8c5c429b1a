// One CUDA device: its memory and what it uses of the host's, one stream of work, and the first
// error.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/mutex.h"
#include "kernels/cuda/gpu.h"

namespace neuroshard::cuda {

// Devices that this process can use, at least one; UNAVAILABLE says why there is none (no driver,
// one older than the runtime, no device).
StatusOr<int> CountCudaDevices();

// 13.0 of CUDA's 13000.
std::string VersionText(int version);

// Why cudaGetDeviceCount found nothing with `error`, from the versions of CUDA that the driver
// supports (0: no driver) and that this program was built with.
std::string WhyNoDevice(cudaError_t error, int driver, int runtime);

// OK, or INTERNAL with CUDA's words. CUDA's memory of the error is cleared.
Status CudaStatus(cudaError_t error, std::string_view what);

// The GPU of this host with a given number. Every call makes its device the calling thread's.
class CudaGpu final : public Gpu {
 public:
  // Bytes that are not given to allocations: what the driver takes later, and NCCL, whose buffers
  // for each kind of exchange come with the first of it.
  static constexpr std::int64_t kReservedBytes = std::int64_t{2} << 30;

  // UNAVAILABLE when the device cannot be used.
  static StatusOr<std::shared_ptr<CudaGpu>> Create(int device);
  ~CudaGpu() override;

  int device() const { return device_; }
  cudaStream_t stream() const { return stream_; }
  void Use() const { (void)cudaSetDevice(device_); }

  // Errors are kept: CUDA repeats such an error for every later call of the process.
  void Note(cudaError_t error, std::string_view what);
  // Notes an error that the device got through another stream. From any thread, never waits.
  void Probe();

  // The driver loads a kernel when it is first launched, and waits for the device to do so: all of
  // them now, so that this is in nobody's time.
  Status LoadKernels();

  StatusOr<std::byte*> Allocate(std::int64_t bytes) override;
  void Free(std::byte* memory) override;
  std::int64_t AvailableBytes() const override;
  // Pinned: reached over the bus, nothing of it moves to the device. Pinning goes through all of
  // its pages, so the largest block that was freed is kept for the next.
  StatusOr<std::byte*> AllocateOnHost(std::int64_t bytes) override;
  void FreeOnHost(std::byte* memory) override;
  std::int64_t AvailableHostBytes() const override;
  Status CopyIn(void* device, const void* host, std::int64_t bytes) override;
  Status CopyOut(void* host, const void* device, std::int64_t bytes) override;
  void Launch(const GpuLaunch& launch) override;
  StatusOr<std::int64_t> ScratchBytes(const SortLaunch& sort) override;
  StatusOr<std::int64_t> ScratchBytes(const DistinctLaunch& sort) override;
  Status status() const override;  // from any thread

 private:
  CudaGpu(int device, cudaStream_t stream) : device_(device), stream_(stream) {}
  Status LoadSorts();
  template <typename Sort>
  StatusOr<std::int64_t> ScratchOf(Sort sort, std::string_view what);
  void DropKept();
  bool IsPinned(const void* memory) const;
  Status Finish(cudaError_t enqueued, std::string_view what);

  const int device_;
  const cudaStream_t stream_;
  std::map<const std::byte*, std::int64_t> pinned_;  // bytes of what is in use
  std::byte* kept_ = nullptr;                        // pinned and free
  std::int64_t kept_bytes_ = 0;
  mutable Mutex mutex_;
  Status status_ NS_GUARDED_BY(mutex_);
};

}  // namespace neuroshard::cuda
