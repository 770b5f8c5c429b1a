// What CUDA sources use of the language, for the host's compiler and the SIMT emulator. Included
// before an emulated source, outside of every namespace.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>

#include "kernels/cuda/testing/simt_emulator.h"

// The names are CUDA's.
// NOLINTBEGIN(bugprone-reserved-identifier,bugprone-sizeof-expression)
#undef __global__
#undef __device__
#undef __launch_bounds__
#define __global__
#define __device__
#define __launch_bounds__(...)
#define threadIdx ::neuroshard::cuda::simt::thread_index
#define blockIdx ::neuroshard::cuda::simt::block_index

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int distance) {
  static_assert(sizeof(T) % sizeof(std::uint32_t) == 0);
  std::uint32_t words[sizeof(T) / sizeof(std::uint32_t)];
  std::memcpy(words, &value, sizeof value);
  for (std::uint32_t& word : words) {
    word = ::neuroshard::cuda::simt::ShuffleXor(mask, word, distance);
  }
  std::memcpy(&value, words, sizeof value);
  return value;
}
inline unsigned __ballot_sync(unsigned mask, bool value) {
  unsigned bits = value ? 1U << (threadIdx.x % 32) : 0;
  for (int distance = 1; distance < 32; distance *= 2) {
    bits |= __shfl_xor_sync(mask, bits, distance);
  }
  return bits;
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline void __syncwarp(unsigned mask = 0xffffffffU) { ::neuroshard::cuda::simt::SyncWarp(mask); }

template <typename T>
T __ldg(const T* address) {
  return *address;
}
// NOLINTEND(bugprone-reserved-identifier,bugprone-sizeof-expression)

// Kernels need no loading here.
template <typename T>
cudaError_t EmulatedFuncGetAttributes(cudaFuncAttributes*, T*) {
  return cudaSuccess;
}
#define cudaFuncGetAttributes EmulatedFuncGetAttributes
#define cudaGetLastError() cudaSuccess
