// Gpu: memory, copies and launches, as the embedding op needs them. Two implementations: CUDA
// (cuda_gpu.h) and, for tests on machines without a GPU, a loop over the blocks and threads of each
// launch (testing/sequential_gpu.h). Pointers of the launches are device memory, arrays of tables
// included; rows and moments may be in the host's. GpuBuffer owns a block of such memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "common/base/status.h"
#include "kernels/cuda/cached_rows.h"
#include "kernels/cuda/generated_values.h"
#include "kernels/cuda/pooling.h"
#include "kernels/cuda/row_keys.h"
#include "kernels/cuda/row_update.h"
#include "kernels/cuda/table_blocks.h"

namespace neuroshard::cuda {

// Sorts entries by key, stable. Both pairs of arrays have `entries` elements; scratch is what
// SortScratchBytes said.
struct SortLaunch {
  std::int64_t entries = 0;
  int key_bits = 0;
  bool scaled = false;  // ScaledOccurrence, not PlainOccurrence
  const std::uint32_t* keys = nullptr;
  const void* occurrences = nullptr;
  std::uint32_t* sorted_keys = nullptr;
  void* sorted_occurrences = nullptr;
  void* scratch = nullptr;
  std::int64_t scratch_bytes = 0;
};

// Sorts keys and keeps each once; scratch is what DistinctScratchBytes said.
struct DistinctLaunch {
  std::int64_t entries = 0;
  int key_bits = 0;
  std::uint64_t* keys = nullptr;  // those that are kept take their place
  std::uint64_t* sorted_keys = nullptr;
  std::int64_t* num_kept = nullptr;
  void* scratch = nullptr;
  std::int64_t scratch_bytes = 0;
};

// The launch of one level of the backward pass.
struct UpdateLaunch {
  Batched<UpdateTable> batch;
  EntryKind entries = EntryKind::kPlain;
  int vectors_per_lane = 0;  // the most of the tables with blocks
  bool cached = false;       // of tables with a cache
  UpdateStep step;
};

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

  virtual void Fill(const Batched<FillTable>& batch) = 0;
  virtual void Generate(const Batched<LookupTable>& batch) = 0;
  // cached: of tables with a cache.
  virtual void Pool(const Batched<PoolTable>& batch, bool cached) = 0;
  virtual void Gather(const Batched<GatherTable>& batch, bool cached) = 0;
  virtual void AddSegments(const Batched<SegmentTable>& batch) = 0;
  virtual void MakeRowKeys(const Batched<KeyTable>& batch, std::uint32_t* keys, void* occurrences,
                           bool scaled) = 0;
  virtual StatusOr<std::int64_t> SortScratchBytes(std::int64_t entries, bool scaled,
                                                  int key_bits) = 0;
  virtual void Sort(const SortLaunch& launch) = 0;
  virtual void Update(const UpdateLaunch& launch) = 0;
  virtual void MakeCacheKeys(const Batched<CacheKeyTable>& batch, int row_bits,
                             std::uint64_t* keys) = 0;
  virtual StatusOr<std::int64_t> DistinctScratchBytes(std::int64_t entries, int key_bits) = 0;
  virtual void KeepDistinct(const DistinctLaunch& launch) = 0;
  virtual void UseCaches(const CacheUse& use) = 0;

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
