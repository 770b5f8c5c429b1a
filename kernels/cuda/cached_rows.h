// Forward of tables with a cache (fused_uvm_caching), before the lookup: the rows that it misses
// are fetched from the host's memory into slots of the device's, by the rule of cache_rule.h. Ids
// become keys in the order of sets and, within one, of rows; they are sorted and each kept once
// (sort_kernels.cu); then the lanes of a warp work for a set. Slots of different sets are
// different, so nobody waits for another block, and which rows end where does not depend on the
// launch.
#pragma once

#include <cstdint>

#include "kernels/api/cache_rule.h"
#include "kernels/cuda/numbers.h"
#include "kernels/cuda/table_blocks.h"

namespace neuroshard::cuda {

// The ids of one table with a cache, to be made into keys; sets of all tables are numbered through.
struct CacheKeyTable {
  const std::int64_t* ids = nullptr;
  std::int64_t count = 0;
  std::int64_t first_key = 0;  // in the shared array
  std::int64_t first_set = 0;
  std::int64_t sets = 0;
};

inline constexpr int kCacheKeysPerThread = 4;
inline constexpr std::int64_t kCacheKeysPerBlock = kThreads * kCacheKeysPerThread;

NS_DEVICE_CODE void MakeCacheKeysOfBlock(const CacheKeyTable& table, int row_bits,
                                         std::uint64_t* keys, std::int64_t block, int thread) {
  for (int k = 0; k < kCacheKeysPerThread; ++k) {
    const std::int64_t i = block * kCacheKeysPerBlock + k * kThreads + thread;
    if (i >= table.count) return;
    const std::int64_t row = LoadConstant(table.ids + i);
    const std::int64_t set = table.first_set + CacheSetOf(row, table.sets);
    keys[table.first_key + i] =
        static_cast<std::uint64_t>(set) << row_bits | static_cast<std::uint64_t>(row);
  }
}

// One table and its cache. A row in a slot is newer than that of the table.
struct CacheTable {
  void* rows = nullptr;   // in the host's memory
  void* slots = nullptr;  // rows in the device's
  NumberType type = NumberType::kFp32;
  std::int32_t vectors = 0;               // of a row
  std::int64_t sets = 0;                  // of kCacheWays slots each
  std::uint32_t* slot_of_row = nullptr;   // 1 more than the slot; 0: in none
  std::int64_t* row_of_slot = nullptr;    // unless the slot is free
  std::int64_t* batch_of_slot = nullptr;  // the last that used it; 0: free
};

// What CacheCounts (embedding_op.h) are made of. Warps add to one of kCacheTotals each, so that
// they do not all meet at one address.
struct CacheTotals {
  std::uint64_t distinct_rows = 0;
  std::uint64_t missed_rows = 0;
  std::uint64_t filled_slots = 0;
};
inline constexpr int kCacheTotals = 256;

// One batch of all tables. A chunk is kCacheChunk keys and has the sets that begin there.
struct CacheUse {
  Batched<CacheTable> caches;           // their "blocks" are sets
  const std::uint64_t* keys = nullptr;  // ascending, each once
  const std::int64_t* num_keys = nullptr;
  std::int64_t blocks = 0;  // for as many keys as there may be
  int row_bits = 0;
  std::int64_t batch = 0;
  CacheTotals* totals = nullptr;

  bool empty() const { return blocks == 0; }
};
inline constexpr std::int64_t kCacheChunk = 32;
inline constexpr std::int64_t kCacheChunksPerBlock = kThreads / kWarp;

NS_DEVICE_CODE void AddTo(std::uint64_t* total, std::uint64_t value) {
#ifdef __CUDA_ARCH__
  atomicAdd(reinterpret_cast<unsigned long long*>(total), value);
#else
  *total += value;
#endif
}

// A set of one table. Group: lane(), lanes(), and over the lanes Sum(float), Min(std::uint64_t);
// Agree(): what lanes wrote before it others read after it.
template <typename Group>
class CacheSet {
 public:
  NS_DEVICE_CODE CacheSet(const CacheTable& table, const CacheUse& use, std::int64_t set,
                          Group group)
      : table_(table), use_(use), first_slot_(set * kCacheWays), group_(group) {}

  // keys [begin, the result) are the set's. Adds to totals, which all lanes have.
  NS_DEVICE_CODE std::int64_t Use(std::int64_t begin, std::int64_t num_keys, CacheTotals* totals) {
    const std::int64_t end = MarkHits(begin, num_keys);
    totals->distinct_rows += static_cast<std::uint64_t>(end - begin);
    bool full = false;
    for (std::int64_t first = begin; first < end; first += group_.lanes()) {
      std::uint64_t missing = kNone;  // the lane's row
      if (first + group_.lane() < end) {
        const std::uint64_t row = RowOf(use_.keys[first + group_.lane()]);
        if (table_.slot_of_row[row] == 0) missing = row;
      }
      totals->missed_rows += static_cast<std::uint64_t>(group_.Sum(missing != kNone ? 1.0F : 0.0F));
      while (!full) {
        const std::uint64_t row = group_.Min(missing);
        if (row == kNone) break;
        const std::uint64_t oldest = OldestWay();
        full = oldest / kCacheWays == static_cast<std::uint64_t>(use_.batch);
        if (full) break;
        totals->filled_slots += oldest < kCacheWays ? 1 : 0;
        Replace(first_slot_ + static_cast<std::int64_t>(oldest % kCacheWays), row);
        if (missing == row) missing = kNone;
      }
    }
    return end;
  }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  NS_DEVICE_CODE std::uint64_t RowOf(std::uint64_t key) const {
    return key & ((std::uint64_t{1} << use_.row_bits) - 1);
  }

  // Marks the hits of all rows, before any is replaced. Returns where the set's keys end.
  NS_DEVICE_CODE std::int64_t MarkHits(std::int64_t begin, std::int64_t num_keys) const {
    const std::uint64_t set = use_.keys[begin] >> use_.row_bits;
    std::uint64_t end = kNone;
    for (std::int64_t first = begin; end == kNone; first += group_.lanes()) {
      const std::int64_t i = first + group_.lane();
      const bool within = i < num_keys && use_.keys[i] >> use_.row_bits == set;
      if (within) {
        const std::uint32_t slot = table_.slot_of_row[RowOf(use_.keys[i])];
        if (slot != 0) table_.batch_of_slot[slot - 1] = use_.batch;
      }
      end = group_.Min(within ? kNone : static_cast<std::uint64_t>(i));
    }
    group_.Agree();
    return static_cast<std::int64_t>(end);
  }

  // The way that was used longest ago, below its batch.
  NS_DEVICE_CODE std::uint64_t OldestWay() const {
    std::uint64_t oldest = kNone;
    for (std::int64_t way = group_.lane(); way < kCacheWays; way += group_.lanes()) {
      const auto batch = static_cast<std::uint64_t>(table_.batch_of_slot[first_slot_ + way]);
      const std::uint64_t used = batch * kCacheWays + static_cast<std::uint64_t>(way);
      oldest = used < oldest ? used : oldest;
    }
    return group_.Min(oldest);
  }

  NS_DEVICE_CODE void Replace(std::int64_t slot, std::uint64_t row) const {
    const bool was_free = table_.batch_of_slot[slot] == 0;
    const std::int64_t evicted = was_free ? kNoRow : table_.row_of_slot[slot];
    if (table_.type == NumberType::kFp32) {
      CopyRows<Fp32>(slot, evicted, static_cast<std::int64_t>(row));
    } else {
      CopyRows<Fp16>(slot, evicted, static_cast<std::int64_t>(row));  // as bits
    }
    group_.Agree();  // every lane has read whose slot it was
    if (group_.lane() == 0) {
      if (evicted != kNoRow) table_.slot_of_row[evicted] = 0;
      table_.slot_of_row[row] = static_cast<std::uint32_t>(slot + 1);
      table_.row_of_slot[slot] = static_cast<std::int64_t>(row);
      table_.batch_of_slot[slot] = use_.batch;
    }
    group_.Agree();
  }

  template <typename Type>
  NS_DEVICE_CODE void CopyRows(std::int64_t slot, std::int64_t evicted, std::int64_t row) const {
    auto* const rows = static_cast<typename Type::Raw*>(table_.rows);
    auto* const of_slot = static_cast<typename Type::Raw*>(table_.slots) + slot * table_.vectors;
    for (std::int32_t v = group_.lane(); v < table_.vectors; v += group_.lanes()) {
      const typename Type::Raw fetched = LoadRow(rows + row * table_.vectors + v);
      if (evicted != kNoRow) StoreRow(rows + evicted * table_.vectors + v, LoadRow(of_slot + v));
      StoreRow(of_slot + v, fetched);
    }
  }

  const CacheTable& table_;
  const CacheUse& use_;
  const std::int64_t first_slot_;
  const Group group_;
};

// The sets whose keys begin in the chunk, which may be beyond the last.
template <typename Group>
NS_DEVICE_CODE void UseSets(const CacheUse& use, std::int64_t chunk, Group group) {
  const std::int64_t num_keys = *use.num_keys;
  const std::int64_t begin = chunk * kCacheChunk;
  const std::int64_t end = begin + kCacheChunk < num_keys ? begin + kCacheChunk : num_keys;
  CacheTotals totals;
  for (std::int64_t i = begin; i < end;) {
    const std::uint64_t set = use.keys[i] >> use.row_bits;
    if (i > 0 && use.keys[i - 1] >> use.row_bits == set) {  // began in the chunk before
      ++i;
      continue;
    }
    const TableBlock found =
        FindTable(use.caches.first_block, use.caches.num_tables, static_cast<std::int64_t>(set));
    const CacheTable table = use.caches.tables[found.table];
    i = CacheSet<Group>(table, use, found.block, group).Use(i, num_keys, &totals);
  }
  if (begin >= end || group.lane() != 0) return;
  CacheTotals* const sum = use.totals + chunk % kCacheTotals;
  AddTo(&sum->distinct_rows, totals.distinct_rows);
  AddTo(&sum->missed_rows, totals.missed_rows);
  AddTo(&sum->filled_slots, totals.filled_slots);
}

}  // namespace neuroshard::cuda
