// SequentialGpu, for tests: runs every launch as a loop over its blocks and threads, in host
// memory, with the bodies of the CUDA kernels. It cannot show what only hardware has: lanes that
// exchange values, races, and the CUDA calls themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "kernels/cuda/gpu.h"

namespace neuroshard::cuda {

// A Gpu in host memory, one thread. Not for concurrent use.
class SequentialGpu : public Gpu {
 public:
  // `host_bytes`: what there is of the other kind of memory.
  explicit SequentialGpu(std::int64_t memory_bytes, std::int64_t host_bytes = std::int64_t{1} << 28)
      : available_bytes_(memory_bytes), available_host_bytes_(host_bytes) {}

  // Memory is handed out full of NaN, so that nothing can be used before it is written.
  StatusOr<std::byte*> Allocate(std::int64_t bytes) override;
  void Free(std::byte* memory) override;
  std::int64_t AvailableBytes() const override { return available_bytes_; }
  StatusOr<std::byte*> AllocateOnHost(std::int64_t bytes) override;
  void FreeOnHost(std::byte* memory) override;
  std::int64_t AvailableHostBytes() const override { return available_host_bytes_; }
  Status CopyIn(void* device, const void* host, std::int64_t bytes) override;
  Status CopyOut(void* host, const void* device, std::int64_t bytes) override;

  void Launch(const GpuLaunch& launch) override;
  StatusOr<std::int64_t> ScratchBytes(const SortLaunch&) override { return 1; }
  StatusOr<std::int64_t> ScratchBytes(const DistinctLaunch&) override { return 1; }
  Status status() const override { return absl::OkStatus(); }

  // Update launches so far.
  int updates() const { return updates_; }

 private:
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    std::int64_t bytes;
  };
  StatusOr<std::byte*> TakeBlock(std::int64_t bytes, std::int64_t& available);
  void GiveBlock(std::byte* memory, std::int64_t& available);

  std::map<std::byte*, Block> blocks_;  // by the aligned address that was handed out
  std::int64_t available_bytes_;
  std::int64_t available_host_bytes_;
  int updates_ = 0;
};

}  // namespace neuroshard::cuda
