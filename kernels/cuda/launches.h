// The launches of an embedding op, as values: whoever runs them (gpu.h) takes any of them. Pointers
// are device memory, arrays of tables included; rows and moments may be in the host's. One that is
// `empty` is left out.
#pragma once

#include <cstdint>

#include "kernels/cuda/cached_rows.h"
#include "kernels/cuda/generated_values.h"
#include "kernels/cuda/pooling.h"
#include "kernels/cuda/row_keys.h"
#include "kernels/cuda/row_update.h"
#include "kernels/cuda/table_blocks.h"

namespace neuroshard::cuda {

using FillLaunch = Batched<FillTable>;
using LookupLaunch = Batched<LookupTable>;
using SegmentLaunch = Batched<SegmentTable>;

struct PoolLaunch : Batched<PoolTable> {
  bool cached = false;  // of tables with a cache
};

struct GatherLaunch : Batched<GatherTable> {
  bool cached = false;  // of tables with a cache
};

// Makes the ids of all tables into entries to be sorted.
struct KeyLaunch : Batched<KeyTable> {
  std::uint32_t* keys = nullptr;
  void* occurrences = nullptr;
  bool scaled = false;  // ScaledOccurrence, not PlainOccurrence
};

// Sorts entries by key, stable. Both pairs of arrays have `entries` elements; scratch is as large as
// Gpu::ScratchBytes says.
struct SortLaunch {
  std::int64_t entries = 0;
  int key_bits = 0;
  bool scaled = false;  // as in KeyLaunch
  const std::uint32_t* keys = nullptr;
  const void* occurrences = nullptr;
  std::uint32_t* sorted_keys = nullptr;
  void* sorted_occurrences = nullptr;
  void* scratch = nullptr;
  std::int64_t scratch_bytes = 0;

  bool empty() const { return entries == 0; }
};

// One level of the backward pass.
struct UpdateLaunch : Batched<UpdateTable> {
  EntryKind entries = EntryKind::kPlain;
  int vectors_per_lane = 0;  // the most of the tables with blocks
  bool cached = false;       // of tables with a cache
  UpdateStep step;
};

// Makes the ids of tables with a cache into keys of their sets.
struct CacheKeyLaunch : Batched<CacheKeyTable> {
  int row_bits = 0;
  std::uint64_t* keys = nullptr;
};

// Sorts keys and keeps each once; scratch as in SortLaunch.
struct DistinctLaunch {
  std::int64_t entries = 0;
  int key_bits = 0;
  std::uint64_t* keys = nullptr;  // those that are kept take their place
  std::uint64_t* sorted_keys = nullptr;
  std::int64_t* num_kept = nullptr;
  void* scratch = nullptr;
  std::int64_t scratch_bytes = 0;

  bool empty() const { return entries == 0; }
};

}  // namespace neuroshard::cuda
