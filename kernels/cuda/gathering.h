// Forward of tables without pooling: rows are written to the output, one an id. A thread owns four
// columns of eight ids that follow each other, and has all eight rows in flight.
#pragma once

#include <cstdint>

#include "kernels/cuda/pooling.h"

namespace neuroshard::cuda {

struct GatherTable {
  const void* weights = nullptr;
  NumberType type = NumberType::kFp32;
  std::int32_t vectors = 0;  // of a row
  const std::int64_t* ids = nullptr;
  std::int64_t count = 0;   // of ids
  float* output = nullptr;  // [count, vectors * 4]
  // As PoolTable's.
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
  switch (table.type) {
    case NumberType::kFp32:
      return GatherRows<Fp32, kCached>(table, block, thread);
    case NumberType::kFp16:
      return GatherRows<Fp16, kCached>(table, block, thread);
    case NumberType::kBf16:
      return GatherRows<Bf16, kCached>(table, block, thread);
  }
}

}  // namespace neuroshard::cuda
