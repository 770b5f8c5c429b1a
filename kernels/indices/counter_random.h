// Random numbers by their number: any of a sequence without those before it, so that every thread
// of a device can make its own. Integers only: the same everywhere.
#pragma once

#include <cstdint>

// A function that both compilers understand: nvcc compiles it for devices, the host's compiler for
// everything else.
#ifdef __CUDACC__
#define NS_DEVICE_CODE __host__ __device__ __forceinline__
#else
#define NS_DEVICE_CODE inline
#endif

namespace neuroshard {

// A bijection of 64-bit numbers; SplitMix(seed + i) for i = 0, 1, ... is a random sequence (Steele,
// Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
NS_DEVICE_CODE std::uint64_t SplitMix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// floor(bits * bound / 2^64): uniform in [0, bound) for uniform bits, up to a bias of bound / 2^64.
NS_DEVICE_CODE std::uint64_t Scale(std::uint64_t bits, std::uint64_t bound) {
#ifdef __CUDA_ARCH__
  return __umul64hi(bits, bound);
#else
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(bits) * bound) >> 64);
#endif
}

}  // namespace neuroshard
