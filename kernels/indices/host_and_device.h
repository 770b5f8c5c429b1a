// Functions that both compilers understand: nvcc compiles them for devices, the host's compiler for
// everything else.
#pragma once

#ifdef __CUDACC__
#define NS_DEVICE_CODE __host__ __device__ __forceinline__
#else
#define NS_DEVICE_CODE inline
#endif
