// Which rows of a table are in the device's memory: a set-associative cache, least recently used
// rows out, as FBGEMM's (lru_cache_populate_cuda) is.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/api/cache_rule.h"
#include "kernels/api/embedding_op.h"

namespace neuroshard {

// A cache of rows by the rule of cache_rule.h. Linear in the ids, by kWays tags each. Not
// thread-safe.
class RowCache {
 public:
  static constexpr std::int64_t kWays = kCacheWays;
  static constexpr std::int64_t kNoRow = neuroshard::kNoRow;

  // Bytes besides the slots' rows.
  static std::int64_t BytesFor(std::int64_t slots) { return slots * 16; }

  explicit RowCache(std::int64_t slots);

  std::int64_t slots() const { return static_cast<std::int64_t>(rows_.size()); }
  // The row in each slot; kNoRow where it is free.
  std::span<const std::int64_t> slot_rows() const { return rows_; }
  std::int64_t SetOf(std::int64_t row) const { return CacheSetOf(row, slots() / kWays); }

  // Where a missing row is put: copies `row` into `slot`, after `evicted`, unless it is kNoRow, was
  // written back from there.
  using Replace = std::function<void(std::int64_t slot, std::int64_t evicted, std::int64_t row)>;

  // places[i]: the slot of row ids[i], or slots() + ids[i] where it stays outside. `missing` and
  // `spare` are scratch of as many entries as ids; row_bits hold any row.
  void Use(std::span<const std::int64_t> ids, std::span<std::uint64_t> places,
           std::span<std::uint64_t> missing, std::span<std::uint64_t> spare, int row_bits,
           const Replace& replace);

  // Counts of all batches.
  const CacheCounts& counts() const { return counts_; }

 private:
  // The slot of a row; slots() where it is in none.
  std::int64_t Find(std::int64_t row) const;
  // A slot of the set that this batch does not use; slots() where there is none.
  std::int64_t Victim(std::int64_t set) const;

  std::vector<std::int64_t> rows_;  // kWays of each set, one after the other
  std::vector<std::int64_t> used_;  // the last batch that used the slot's row; 0: free
  std::int64_t batch_ = 0;
  CacheCounts counts_;
};

}  // namespace neuroshard
