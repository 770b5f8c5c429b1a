// Macros for kernel bodies, which two compilers see: nvcc for devices, and the host's compiler for
// tests, which run every block and thread of a launch in a loop.
#pragma once

#include "kernels/indices/host_and_device.h"

#ifdef __CUDA_ARCH__
#define NS_UNROLL _Pragma("unroll")
#define NS_NO_UNROLL _Pragma("unroll 1")
#else
#define NS_UNROLL
#define NS_NO_UNROLL
#endif

namespace neuroshard::cuda {

inline constexpr int kThreads = 256;  // of every block
inline constexpr int kWarp = 32;      // that can exchange values

}  // namespace neuroshard::cuda
