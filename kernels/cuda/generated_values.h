// Values that a device makes where they are used. The weights that a new op starts with are a
// function of seed and position, uniform in [-limit, limit) on a grid, so none is denormal; columns
// of padding are 0. The ids of a batch: every thread makes some ids, weights and offsets of one
// table, each of them by itself (kernels/indices/lookup_rule.h).
#pragma once

#include <cstdint>

#include "kernels/cuda/numbers.h"
#include "kernels/indices/counter_random.h"
#include "kernels/indices/lookup_rule.h"

namespace neuroshard::cuda {

// A matrix in device memory that gets random values in [-limit, limit), or zeros.
struct FillTable {
  void* values = nullptr;
  NumberType type = NumberType::kFp32;
  std::int64_t rows = 0;
  std::int32_t vectors = 0;  // of a row
  std::int32_t cols = 0;     // without padding
  std::int64_t stride = 0;   // vectors from one row to the next
  std::uint64_t seed = 0;
  float limit = 0;  // 0: zeros
};

inline constexpr int kFillVectorsPerThread = 8;
inline constexpr std::int64_t kFillVectorsPerBlock = kThreads * kFillVectorsPerThread;

NS_DEVICE_CODE float InitialValue(const FillTable& table, std::uint64_t bits24, std::int64_t col) {
  if (col >= table.cols) return 0;
  return table.limit * (static_cast<float>(bits24 & 0xffffff) * 0x1.0p-23F - 1.0F);
}

template <typename Type>
NS_DEVICE_CODE void FillBlock(const FillTable& table, std::int64_t block, int thread) {
  const std::int64_t vectors = table.rows * table.vectors;
  auto* values = static_cast<typename Type::Raw*>(table.values);
  for (int k = 0; k < kFillVectorsPerThread; ++k) {
    const std::int64_t i = block * kFillVectorsPerBlock + k * kThreads + thread;
    if (i >= vectors) return;
    const std::int64_t row = i / table.vectors, vector = i % table.vectors, col = vector * kVector;
    const std::uint64_t a = SplitMix(table.seed + 2 * static_cast<std::uint64_t>(i));
    const std::uint64_t b = SplitMix(table.seed + 2 * static_cast<std::uint64_t>(i) + 1);
    values[row * table.stride + vector] =
        Type::Narrow({InitialValue(table, a, col), InitialValue(table, a >> 32, col + 1),
                      InitialValue(table, b, col + 2), InitialValue(table, b >> 32, col + 3)});
  }
}

NS_DEVICE_CODE void FillBlockOfAnyType(const FillTable& table, std::int64_t block, int thread) {
  WithType(table.type, [&](auto type) { FillBlock<decltype(type)>(table, block, thread); });
}

// The ids of one table to be made on the device: rule, and arrays in device memory.
struct LookupTable {
  LookupRule rule;
  std::int64_t* ids = nullptr;
  std::int64_t* offsets = nullptr;  // batch_size + 1
  float* weights = nullptr;         // may be null
};

inline constexpr int kLookupsPerThread = 4;
inline constexpr std::int64_t kLookupsPerBlock = kThreads * kLookupsPerThread;

NS_DEVICE_CODE void GenerateLookups(const LookupTable& table, std::int64_t block, int thread) {
  for (int k = 0; k < kLookupsPerThread; ++k) {
    const std::int64_t i = block * kLookupsPerBlock + k * kThreads + thread;
    if (i <= table.rule.batch_size) table.offsets[i] = table.rule.Offset(i);
    if (i >= table.rule.lookups) continue;
    table.ids[i] = table.rule.Id(i);
    if (table.weights != nullptr) table.weights[i] = table.rule.Weight(i);
  }
}

}  // namespace neuroshard::cuda
