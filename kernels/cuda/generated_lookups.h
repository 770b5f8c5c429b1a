// Makes the ids of a batch where they are used: every thread some ids, weights and offsets of one
// table, each of them by itself (kernels/indices/lookup_rule.h).
#pragma once

#include <cstdint>

#include "kernels/cuda/device_code.h"
#include "kernels/indices/lookup_rule.h"

namespace neuroshard::cuda {

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
