// Forward: the bodies of the kernels that pool rows into the output. A thread owns four columns of
// a bag and talks to no other thread; the lanes of a bag are as many as the table has vectors, so
// narrow tables waste no lanes beside wide ones. Eight rows are in flight: of one bag, and the ids
// of the next eight are loaded meanwhile; or, where bags are short, of two or four neighbours,
// since one at a time would leave memory idle. Sums are formed in trees, which keeps rounding
// errors small.
//
// Bags longer than kLongestBag are cut into segments that different blocks sum, and their sums are
// added in order: no bag makes the rest of the device wait.
//
// Tables without pooling have their rows written to the output, one an id: a thread owns four
// columns of eight ids that follow each other, and has all eight rows in flight.
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
  // 1, 2 or 4 (BagsPerThread); more than one of tables whose bags follow each other in `ids` and
  // are no longer than `longest`.
  std::int32_t bags_per_thread = 1;
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

// How many bags a thread takes so that its rows in flight are filled, for bags of so many ids on
// average.
inline std::int32_t BagsPerThread(std::int64_t ids, std::int64_t bags) {
  return ids <= 5 * bags / 4 ? 4 : ids <= 3 * bags ? 2 : 1;
}

// The sum of a power of two of values, at least two, in a tree.
template <int kCount>
NS_DEVICE_CODE Float4 TreeSum(const Float4* v) {
  if constexpr (kCount == 2) {
    return v[0] + v[1];
  } else {
    return TreeSum<kCount / 2>(v) + TreeSum<kCount / 2>(v + kCount / 2);
  }
}

NS_DEVICE_CODE int CountWithin(std::int64_t begin, std::int64_t end) {
  return end - begin < kRowsInFlight ? static_cast<int>(end - begin) : kRowsInFlight;
}

// The k-th of the ids in flight, from the first of the bags on: kRowsInFlight / kBags of each.
template <int kBags>
NS_DEVICE_CODE int IdOf(const int (&ends)[kBags], int done, int k) {
  constexpr int kRows = kRowsInFlight / kBags;
  return (k < kRows ? 0 : ends[k / kRows - 1]) + done + k % kRows;
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

  // The rows of the ids from `done` on of kBags bags, which follow each other from ids[begin] on
  // and end `ends` ids later: as many as there is room for, one bag after the other; a device has
  // fewer than 2^32.
  template <int kBags>
  NS_DEVICE_CODE void Find(std::int64_t begin, const int (&ends)[kBags], int done,
                           Places* places) const {
    NS_UNROLL
    for (int k = 0; k < kRowsInFlight; ++k) {
      const int i = IdOf<kBags>(ends, done, k);
      places->row[k] = 0;
      if (i < ends[k * kBags / kRowsInFlight]) {
        places->row[k] = static_cast<std::uint32_t>(LoadConstant(ids_ + begin + i));
      }
    }
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

template <typename Type, bool kCached, int kBags>
NS_DEVICE_CODE void PoolBags(const PoolTable& table, std::int64_t block, int thread) {
  constexpr int kRows = kRowsInFlight / kBags;
  const int lanes = PoolLanes(table.vectors);
  const int slot = thread / lanes;
  if (slot >= BagsPerBlock(table.vectors)) return;
  const std::int64_t first = (block * BagsPerBlock(table.vectors) + slot) * kBags;
  if (first >= table.bags) return;
  const std::int64_t begin = LoadConstant(table.begins + first);
  int ends[kBags];
  int longest = 0;
  NS_UNROLL
  for (int b = 0; b < kBags; ++b) {
    const int before = b == 0 ? 0 : ends[b - 1];
    ends[b] = before;
    if (first + b < table.bags)
      ends[b] = static_cast<int>(LoadConstant(table.ends + first + b) - begin);
    longest = ends[b] - before > longest ? ends[b] - before : longest;
  }
  if (longest > table.longest) return;
  const RowReader<Type, kCached> rows(table);

  for (int vector = thread % lanes; vector < table.vectors; vector += lanes) {
    Float4 sum[kBags];
    NS_UNROLL
    for (int b = 0; b < kBags; ++b) sum[b] = {0, 0, 0, 0};
    typename RowReader<Type, kCached>::Places places;
    if constexpr (kBags == 1) rows.Find(begin, ends, 0, &places);
    NS_NO_UNROLL
    for (int done = 0; done < longest; done += kRows) {
      if constexpr (kBags > 1) rows.Find(begin, ends, done, &places);
      typename Type::Raw raw[kRowsInFlight];
      NS_UNROLL
      for (int k = 0; k < kRowsInFlight; ++k) {
        raw[k] = {};
        if (IdOf<kBags>(ends, done, k) < ends[k / kRows]) raw[k] = rows.Load(places, k, vector);
      }
      if constexpr (kBags == 1) rows.Find(begin, ends, done + kRows, &places);
      Float4 products[kRowsInFlight];
      NS_UNROLL
      for (int k = 0; k < kRowsInFlight; ++k) products[k] = Type::Widen(raw[k]);
      if (table.id_weights != nullptr) {
        NS_UNROLL
        for (int k = 0; k < kRowsInFlight; ++k) {
          const int i = IdOf<kBags>(ends, done, k);
          float factor = 0;
          if (i < ends[k / kRows]) factor = LoadConstant(table.id_weights + begin + i);
          products[k] = factor * products[k];
        }
      }
      NS_UNROLL
      for (int b = 0; b < kBags; ++b) sum[b] = sum[b] + TreeSum<kRows>(products + b * kRows);
    }
    NS_UNROLL
    for (int b = 0; b < kBags; ++b) {
      if (first + b >= table.bags) continue;
      const int ids = ends[b] - (b == 0 ? 0 : ends[b - 1]);
      const float scale = table.mean && ids > 0 ? 1.0F / static_cast<float>(ids) : 1.0F;
      float* const output = table.output + (first + b) * table.output_stride;
      reinterpret_cast<Float4*>(output)[vector] = scale * sum[b];
    }
  }
}

template <typename Type, bool kCached>
NS_DEVICE_CODE void PoolBagsOfAnyLength(const PoolTable& table, std::int64_t block, int thread) {
  switch (table.bags_per_thread) {
    case 4:
      return PoolBags<Type, kCached, 4>(table, block, thread);
    case 2:
      return PoolBags<Type, kCached, 2>(table, block, thread);
    default:
      return PoolBags<Type, kCached, 1>(table, block, thread);
  }
}

template <bool kCached>
NS_DEVICE_CODE void PoolBagsOfAnyType(const PoolTable& table, std::int64_t block, int thread) {
  WithType(table.type,
           [&](auto type) { PoolBagsOfAnyLength<decltype(type), kCached>(table, block, thread); });
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
      sum = sum + TreeSum<kRowsInFlight>(values);
    }
    output[vector] = scale * sum;
  }
}

// One table without pooling, whose rows are gathered.
struct GatherTable {
  const void* weights = nullptr;
  NumberType type = NumberType::kFp32;
  std::int32_t vectors = 0;  // of a row
  const std::int64_t* ids = nullptr;
  std::int64_t count = 0;   // of ids
  float* output = nullptr;  // [count, vectors * 4]
  // The cache's slots, as in PoolTable.
  const void* slots = nullptr;
  const std::uint32_t* slot_of_row = nullptr;
};

template <typename Type, bool kCached>
NS_DEVICE_CODE void GatherRows(const GatherTable& table, std::int64_t block, int thread) {
  const int lanes = PoolLanes(table.vectors);
  const int slot = thread / lanes;
  if (slot >= BagsPerBlock(table.vectors)) return;
  const std::int64_t begin = (block * BagsPerBlock(table.vectors) + slot) * kRowsInFlight;
  if (begin >= table.count) return;
  const int count = CountWithin(begin, table.count);
  const RowReader<Type, kCached> rows(table);
  auto* output = reinterpret_cast<Float4*>(table.output) + begin * table.vectors;
  typename RowReader<Type, kCached>::Places places;
  rows.template Find<1>({begin}, {count}, 0, &places);

  for (int vector = thread % lanes; vector < table.vectors; vector += lanes) {
    typename Type::Raw raw[kRowsInFlight];
    NS_UNROLL
    for (int k = 0; k < kRowsInFlight; ++k) {
      raw[k] = {};
      if (k < count) raw[k] = rows.Load(places, k, vector);
    }
    NS_UNROLL
    for (int k = 0; k < kRowsInFlight; ++k) {
      if (k < count) output[std::int64_t{k} * table.vectors + vector] = Type::Widen(raw[k]);
    }
  }
}

template <bool kCached>
NS_DEVICE_CODE void GatherRowsOfAnyType(const GatherTable& table, std::int64_t block, int thread) {
  WithType(table.type,
           [&](auto type) { GatherRows<decltype(type), kCached>(table, block, thread); });
}

}  // namespace neuroshard::cuda
