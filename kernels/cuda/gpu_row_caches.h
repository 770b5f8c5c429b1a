// The caches of an op's tables that are fused_uvm_caching: where they are on the device, and what
// is launched to fetch a batch's rows into them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "kernels/api/embedding_op.h"
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/launch_arrays.h"
#include "kernels/cuda/launch_plan.h"

namespace neuroshard::testing {
class GpuOpContents;
}

namespace neuroshard::cuda {

// One cache a table, by the rule of cache_rule.h; all of them are used in the same launches. None:
// nothing is launched. Not for concurrent use.
class GpuRowCaches {
 public:
  GpuRowCaches(std::shared_ptr<Gpu> gpu, const EmbeddingOpSpec& spec);

  bool empty() const { return caches_.empty(); }

  // Memory of the device that lasts as long as the op: slots, four bytes a row of a table, 16 a
  // slot.
  void TakeMemory(MemoryLayout& layout);
  // Where a table's rows are in the host's memory.
  void SetRows(std::size_t table, void* rows);
  // What has to be zero before the first batch.
  std::vector<FillTable> Zeros() const;
  // Null for a table without a cache.
  const CacheTable* of(std::size_t table) const;

  // INVALID_ARGUMENT for more ids than one sort takes.
  StatusOr<std::int64_t> ScratchBytes(std::int64_t entries) const;
  // The launches for the batch, which is not fetched yet.
  Status Plan(const std::vector<BatchShape>& shapes, const BatchArrays& batch,
              LaunchArrays& arrays);
  bool fetched() const { return fetched_; }
  void Fetch();

  // After everything launched before.
  StatusOr<CacheCounts> Counts() const;

 private:
  friend class neuroshard::testing::GpuOpContents;

  struct Cache {
    std::size_t table = 0;  // of the spec
    std::int64_t rows = 0;
    std::int64_t slots = 0;
    CacheTable on_device;

    std::int64_t row_bytes() const {
      return std::int64_t{on_device.vectors} * kVector * BytesOf(on_device.type);
    }
  };

  const Cache* Find(std::size_t table) const;
  int KeyBits() const;

  const std::shared_ptr<Gpu> gpu_;
  std::vector<Cache> caches_;
  CacheTotals* totals_ = nullptr;
  int row_bits_ = 0;

  bool fetched_ = false;
  CacheKeyLaunch make_keys_;
  DistinctLaunch keep_distinct_;
  CacheUse use_;
};

}  // namespace neuroshard::cuda
