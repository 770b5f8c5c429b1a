// EmulatedGpu, for tests: launches run the CUDA kernels themselves, on the SIMT emulator
// (simt_emulator.h). The sorts are SequentialGpu's, as CUB is not ours.
#pragma once

#include <cstdint>
#include <map>

#include "kernels/cuda/testing/sequential_gpu.h"

namespace neuroshard::cuda {

// A Gpu whose every allocation ends at a page that cannot be touched: a kernel that leaves it ends
// the process, with the block and thread that did. One at a time.
class EmulatedGpu final : public SequentialGpu {
 public:
  explicit EmulatedGpu(std::int64_t memory_bytes, std::int64_t host_bytes = std::int64_t{1} << 28);
  ~EmulatedGpu() override;

  StatusOr<std::byte*> Allocate(std::int64_t bytes) override;
  void Free(std::byte* memory) override;
  std::int64_t AvailableBytes() const override { return available_bytes_; }
  StatusOr<std::byte*> AllocateOnHost(std::int64_t bytes) override;
  void FreeOnHost(std::byte* memory) override;
  std::int64_t AvailableHostBytes() const override { return available_host_bytes_; }

  void Launch(const GpuLaunch& launch) override;

 private:
  struct Mapping {
    void* begin;
    std::size_t size;
    std::int64_t bytes;  // that were asked for
  };
  StatusOr<std::byte*> Map(std::int64_t bytes, std::int64_t& available);
  void Unmap(std::byte* memory, std::int64_t& available);

  std::map<std::byte*, Mapping> mappings_;  // by the address that was handed out
  std::int64_t available_bytes_;
  std::int64_t available_host_bytes_;
};

}  // namespace neuroshard::cuda
