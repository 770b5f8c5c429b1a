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
  explicit SequentialGpu(std::int64_t memory_bytes) : available_bytes_(memory_bytes) {}

  // Memory is handed out full of NaN, so that nothing can be used before it is written.
  StatusOr<std::byte*> Allocate(std::int64_t bytes) override;
  void Free(std::byte* memory) override;
  std::int64_t AvailableBytes() const override { return available_bytes_; }
  Status CopyIn(void* device, const void* host, std::int64_t bytes) override;
  Status CopyOut(void* host, const void* device, std::int64_t bytes) override;

  void Fill(const Batched<FillTable>& batch) override;
  void Generate(const Batched<LookupTable>& batch) override;
  void Pool(const Batched<PoolTable>& batch) override;
  void Gather(const Batched<GatherTable>& batch) override;
  void AddSegments(const Batched<SegmentTable>& batch) override;
  void MakeRowKeys(const Batched<KeyTable>& batch, std::uint32_t* keys, void* occurrences,
                   bool scaled) override;
  StatusOr<std::int64_t> SortScratchBytes(std::int64_t entries, bool scaled, int key_bits) override;
  void Sort(const SortLaunch& launch) override;
  void Update(const UpdateLaunch& launch) override;
  Status status() const override { return absl::OkStatus(); }

  // Launches of Update so far.
  int updates() const { return updates_; }

 private:
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    std::int64_t bytes;
  };
  std::map<std::byte*, Block> blocks_;  // by the aligned address that was handed out
  std::int64_t available_bytes_;
  int updates_ = 0;
};

}  // namespace neuroshard::cuda
