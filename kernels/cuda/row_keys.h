// Backward, first step: every id of the batch becomes an entry (key, occurrence) to be sorted by
// key. Keys number the rows of all tables in order, so one sort does all tables and each table's
// entries keep their place in the array.
#pragma once

#include <cstdint>

#include "kernels/cuda/numbers.h"

namespace neuroshard::cuda {

// An occurrence of an id: the bag (without pooling, the entry) whose gradient it gets, and the
// factor of that gradient.
struct PlainOccurrence {
  std::uint32_t bag;
  NS_DEVICE_CODE float scale() const { return 1.0F; }
};
// An occurrence of a row whose gradient is scaled: its bag, and the factor (weight, or 1 / bag
// length for means).
struct alignas(8) ScaledOccurrence {
  std::uint32_t bag;
  float scale_;
  NS_DEVICE_CODE float scale() const { return scale_; }
};

// The ids of one table, to be made into sort keys; pointers are device memory.
struct KeyTable {
  const std::int64_t* ids = nullptr;
  // batch_size + 1; null: no pooling, and every entry has a gradient of its own.
  const std::int64_t* offsets = nullptr;
  const float* id_weights = nullptr;  // may be null
  std::int64_t batch_size = 0;
  std::int64_t entries = 0;      // ids of the table
  std::uint32_t first_key = 0;   // of row 0
  std::int64_t first_entry = 0;  // in the shared arrays
  bool mean = false;
};

inline constexpr int kEntriesPerThread = 8;
inline constexpr std::int64_t kEntriesPerBlock = kThreads * kEntriesPerThread;

// The bag that holds entry `position`, known to be in [low, high]; empty bags are passed over.
NS_DEVICE_CODE std::int64_t BagOf(const std::int64_t* offsets, std::int64_t low, std::int64_t high,
                                  std::int64_t position) {
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (LoadConstant(offsets + middle) <= position) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

NS_DEVICE_CODE void MakeOccurrence(std::int64_t bag, float /*scale*/, PlainOccurrence* out) {
  out->bag = static_cast<std::uint32_t>(bag);
}
NS_DEVICE_CODE void MakeOccurrence(std::int64_t bag, float scale, ScaledOccurrence* out) {
  *out = {static_cast<std::uint32_t>(bag), scale};
}

// Entries [begin, end) of a table without pooling.
template <typename Occurrence>
NS_DEVICE_CODE void MakeKeysOfRows(const KeyTable& table, std::uint32_t* keys,
                                   Occurrence* occurrences, std::int64_t begin, std::int64_t end,
                                   int thread) {
  for (std::int64_t i = begin + thread; i < end; i += kThreads) {
    keys[table.first_entry + i] =
        table.first_key + static_cast<std::uint32_t>(LoadConstant(table.ids + i));
    MakeOccurrence(i, 1.0F, occurrences + table.first_entry + i);
  }
}

// `find_bag`: BagOf, or a search like it that the threads of a warp make together.
template <typename Occurrence, typename FindBag>
NS_DEVICE_CODE void MakeKeys(const KeyTable& table, std::uint32_t* keys, Occurrence* occurrences,
                             std::int64_t block, int thread, FindBag find_bag) {
  const std::int64_t begin = block * kEntriesPerBlock;
  const std::int64_t end =
      begin + kEntriesPerBlock < table.entries ? begin + kEntriesPerBlock : table.entries;
  if (begin >= end) return;
  if (table.offsets == nullptr) return MakeKeysOfRows(table, keys, occurrences, begin, end, thread);
  // Bags of the block's ends: a short range for the search of each entry.
  const std::int64_t low = find_bag(table.offsets, 0, table.batch_size - 1, begin);
  const std::int64_t high = find_bag(table.offsets, low, table.batch_size - 1, end - 1);
  for (std::int64_t i = begin + thread; i < end; i += kThreads) {
    const std::int64_t bag = BagOf(table.offsets, low, high, i);
    float scale = table.id_weights == nullptr ? 1.0F : LoadConstant(table.id_weights + i);
    if (table.mean) {
      scale /= static_cast<float>(LoadConstant(table.offsets + bag + 1) -
                                  LoadConstant(table.offsets + bag));
    }
    keys[table.first_entry + i] =
        table.first_key + static_cast<std::uint32_t>(LoadConstant(table.ids + i));
    MakeOccurrence(bag, scale, occurrences + table.first_entry + i);
  }
}

}  // namespace neuroshard::cuda
