#include "kernels/cpu/row_cache.h"

#include <algorithm>

#include "kernels/cpu/row_sort.h"

namespace neuroshard {

RowCache::RowCache(std::int64_t slots) : rows_(slots, kNoRow), used_(slots, 0) {
  counts_.free_slots = slots;
}

std::int64_t RowCache::Find(std::int64_t row) const {
  const std::int64_t begin = SetOf(row) * kWays;
  const std::int64_t* const tags = &rows_[begin];
  std::int64_t way = kWays;
  for (std::int64_t i = 0; i < kWays; ++i) way = tags[i] == row ? i : way;  // in vectors
  return way == kWays ? slots() : begin + way;
}

// Free slots were used by batch 0, before all others.
std::int64_t RowCache::Victim(std::int64_t set) const {
  const auto begin = used_.begin() + set * kWays;
  const auto oldest = std::min_element(begin, begin + kWays);
  return *oldest == batch_ ? slots() : oldest - used_.begin();
}

void RowCache::Use(std::span<const std::int64_t> ids, std::span<std::uint64_t> places,
                   std::span<std::uint64_t> missing, std::span<std::uint64_t> spare, int row_bits,
                   const Replace& replace) {
  ++batch_;
  std::size_t num_missing = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int64_t slot = Find(ids[i]);
    places[i] = static_cast<std::uint64_t>(slot);
    if (slot == slots()) {
      missing[num_missing++] = static_cast<std::uint64_t>(ids[i]);
    } else if (used_[slot] != batch_) {
      used_[slot] = batch_;
      ++counts_.distinct_rows;
    }
  }
  const std::span<std::uint64_t> sorted =
      SortByRow({missing.first(num_missing), {}}, {spare.first(num_missing), {}}, 0, row_bits).keys;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (i > 0 && sorted[i] == sorted[i - 1]) continue;
    ++counts_.distinct_rows;
    ++counts_.missed_rows;
    const auto row = static_cast<std::int64_t>(sorted[i]);
    const std::int64_t slot = Victim(SetOf(row));
    if (slot == slots()) continue;
    const std::int64_t evicted = rows_[slot];
    if (evicted == kNoRow) --counts_.free_slots;
    replace(slot, evicted, row);
    rows_[slot] = row;
    used_[slot] = batch_;
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (places[i] != static_cast<std::uint64_t>(slots())) continue;
    const std::int64_t slot = Find(ids[i]);
    places[i] = static_cast<std::uint64_t>(slot == slots() ? slots() + ids[i] : slot);
  }
}

}  // namespace neuroshard
