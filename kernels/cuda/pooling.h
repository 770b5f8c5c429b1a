// Forward: the bodies of the kernels that pool rows into the output. A thread owns four columns of
// one bag and talks to no other thread; the lanes of a bag are as many as the table has vectors, so
// narrow tables waste no lanes beside wide ones. Eight rows are in flight, and while they are the
// ids of the next eight are loaded. Sums are formed in trees of eight, which keeps rounding errors
// small.
//
// Bags longer than kLongestBag are cut into segments that different blocks sum, and their sums are
// added in order: no bag makes the rest of the device wait.
#pragma once

#include <cstdint>

#include "kernels/cuda/numbers.h"

namespace neuroshard::cuda {

inline constexpr std::int64_t kLongestBag = 1024;
inline constexpr std::int64_t kSegment = 512;
inline constexpr int kRowsInFlight = 8;

// Bags (or segments of bags) of one table: bag b has ids[begins[b] .. ends[b]).
struct PoolTable {
  const void* weights = nullptr;
  NumberType type = NumberType::kFp32;
  std::int32_t vectors = 0;  // of a row
  const std::int64_t* ids = nullptr;
  const float* id_weights = nullptr;  // may be null
  const std::int64_t* begins = nullptr;
  const std::int64_t* ends = nullptr;
  std::int64_t bags = 0;
  std::int64_t longest = 0;  // longer ones are left out
  bool mean = false;
  float* output = nullptr;
  std::int64_t output_stride = 0;  // floats from one bag to the next
  // With a cache (cached_rows.h): rows of slots, and 1 more than the slot of each row or 0.
  const void* slots = nullptr;
  const std::uint32_t* slot_of_row = nullptr;
};

// Sums of the segments of one table's long bags: bag j is the sum of partials
// [first_segment[j], first_segment[j + 1]).
struct SegmentTable {
  const float* partials = nullptr;  // [segments, vectors * 4]
  std::int32_t vectors = 0;
  const std::int64_t* first_segment = nullptr;
  const std::int64_t* bag = nullptr;  // its number in the batch
  const std::int64_t* offsets = nullptr;
  std::int64_t bags = 0;
  bool mean = false;
  float* output = nullptr;
  std::int64_t output_stride = 0;
};

NS_DEVICE_CODE int PoolLanes(std::int32_t vectors) {
  return vectors < kThreads ? vectors : kThreads;
}
NS_DEVICE_CODE int BagsPerBlock(std::int32_t vectors) { return kThreads / PoolLanes(vectors); }

NS_DEVICE_CODE Float4 TreeSum(const Float4 (&v)[kRowsInFlight]) {
  return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

NS_DEVICE_CODE int CountWithin(std::int64_t begin, std::int64_t end) {
  return end - begin < kRowsInFlight ? static_cast<int>(end - begin) : kRowsInFlight;
}

// The first rows of ids[begin .. end); a device has fewer than 2^32.
NS_DEVICE_CODE void LoadIds(const std::int64_t* ids, std::int64_t begin, std::int64_t end,
                            std::uint32_t (&rows)[kRowsInFlight]) {
  const int count = CountWithin(begin, end);
  NS_UNROLL
  for (int k = 0; k < kRowsInFlight; ++k) {
    rows[k] = 0;
    if (k < count) rows[k] = static_cast<std::uint32_t>(LoadConstant(ids + begin + k));
  }
}

// The rows of a table. kCached: of which some are in slots of a cache.
template <typename Type, bool kCached>
class RowReader {
 public:
  // PoolTable or GatherTable.
  template <typename Table>
  explicit NS_DEVICE_CODE RowReader(const Table& table)
      : rows_(static_cast<const Raw*>(table.weights)),
        slots_(static_cast<const Raw*>(table.slots)),
        slot_of_row_(table.slot_of_row),
        ids_(table.ids),
        vectors_(table.vectors) {}

  using Raw = typename Type::Raw;
  // What is known of rows before they are loaded.
  struct Places {
    std::uint32_t row[kRowsInFlight];
    std::uint32_t slot[kCached ? kRowsInFlight : 1];
  };

  NS_DEVICE_CODE void Find(std::int64_t begin, std::int64_t end, Places* places) const {
    LoadIds(ids_, begin, end, places->row);
    if constexpr (kCached) {
      NS_UNROLL
      for (int k = 0; k < kRowsInFlight; ++k) {
        places->slot[k] = LoadConstant(slot_of_row_ + places->row[k]);
      }
    }
  }
  NS_DEVICE_CODE Raw Load(const Places& places, int k, int vector) const {
    if constexpr (kCached) {
      const bool has_slot = places.slot[k] != 0;
      const std::int64_t place = has_slot ? places.slot[k] - 1 : places.row[k];
      return LoadConstant((has_slot ? slots_ : rows_) + place * vectors_ + vector);
    }
    return LoadConstant(rows_ + std::int64_t{places.row[k]} * vectors_ + vector);
  }

 private:
  const Raw* rows_;
  const Raw* slots_;
  const std::uint32_t* slot_of_row_;
  const std::int64_t* ids_;
  std::int32_t vectors_;
};

template <typename Type, bool kCached>
NS_DEVICE_CODE void PoolBags(const PoolTable& table, std::int64_t block, int thread) {
  const int lanes = PoolLanes(table.vectors);
  const int slot = thread / lanes;
  if (slot >= BagsPerBlock(table.vectors)) return;
  const std::int64_t bag = block * BagsPerBlock(table.vectors) + slot;
  if (bag >= table.bags) return;
  const std::int64_t begin = LoadConstant(table.begins + bag);
  const std::int64_t end = LoadConstant(table.ends + bag);
  if (end - begin > table.longest) return;
  const float scale = table.mean && end > begin ? 1.0F / static_cast<float>(end - begin) : 1.0F;
  const RowReader<Type, kCached> rows(table);
  auto* output = reinterpret_cast<Float4*>(table.output + bag * table.output_stride);

  for (int vector = thread % lanes; vector < table.vectors; vector += lanes) {
    Float4 sum = {0, 0, 0, 0};
    typename RowReader<Type, kCached>::Places places;
    rows.Find(begin, end, &places);
    for (std::int64_t i = begin; i < end; i += kRowsInFlight) {
      const int count = CountWithin(i, end);
      typename Type::Raw raw[kRowsInFlight];
      NS_UNROLL
      for (int k = 0; k < kRowsInFlight; ++k) {
        raw[k] = {};
        if (k < count) raw[k] = rows.Load(places, k, vector);
      }
      rows.Find(i + kRowsInFlight, end, &places);
      Float4 products[kRowsInFlight];
      NS_UNROLL
      for (int k = 0; k < kRowsInFlight; ++k) products[k] = Type::Widen(raw[k]);
      if (table.id_weights != nullptr) {
        NS_UNROLL
        for (int k = 0; k < kRowsInFlight; ++k) {
          float factor = 0;
          if (k < count) factor = LoadConstant(table.id_weights + i + k);
          products[k] = factor * products[k];
        }
      }
      sum = sum + TreeSum(products);
    }
    output[vector] = scale * sum;
  }
}

template <bool kCached>
NS_DEVICE_CODE void PoolBagsOfAnyType(const PoolTable& table, std::int64_t block, int thread) {
  switch (table.type) {
    case NumberType::kFp32:
      return PoolBags<Fp32, kCached>(table, block, thread);
    case NumberType::kFp16:
      return PoolBags<Fp16, kCached>(table, block, thread);
    case NumberType::kBf16:
      return PoolBags<Bf16, kCached>(table, block, thread);
  }
}

NS_DEVICE_CODE void SumSegments(const SegmentTable& table, std::int64_t block, int thread) {
  const int lanes = PoolLanes(table.vectors);
  const int slot = thread / lanes;
  if (slot >= BagsPerBlock(table.vectors)) return;
  const std::int64_t index = block * BagsPerBlock(table.vectors) + slot;
  if (index >= table.bags) return;
  const std::int64_t bag = table.bag[index];
  const std::int64_t begin = table.first_segment[index], end = table.first_segment[index + 1];
  const std::int64_t ids = table.offsets[bag + 1] - table.offsets[bag];
  const float scale = table.mean ? 1.0F / static_cast<float>(ids) : 1.0F;
  const auto* partials = reinterpret_cast<const Float4*>(table.partials);
  auto* output = reinterpret_cast<Float4*>(table.output + bag * table.output_stride);
  for (int vector = thread % lanes; vector < table.vectors; vector += lanes) {
    Float4 sum = {0, 0, 0, 0};
    for (std::int64_t i = begin; i < end; i += kRowsInFlight) {
      const int count = CountWithin(i, end);
      const Float4* first = partials + i * table.vectors + vector;
      Float4 values[kRowsInFlight];
      NS_UNROLL
      for (int k = 0; k < kRowsInFlight; ++k) {
        values[k] = {0, 0, 0, 0};
        if (k < count) values[k] = LoadConstant(first + k * table.vectors);
      }
      sum = sum + TreeSum(values);
    }
    output[vector] = scale * sum;
  }
}

}  // namespace neuroshard::cuda
