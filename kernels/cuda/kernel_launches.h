// The kernels, one function a launch; all that the host's compiler sees of device code. Every
// function enqueues on the stream and returns the launch's error, which does not include what goes
// wrong on the device later.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launches.h"

namespace neuroshard::cuda {

cudaError_t Enqueue(const FillLaunch& launch, cudaStream_t stream);
cudaError_t Enqueue(const LookupLaunch& launch, cudaStream_t stream);
cudaError_t Enqueue(const PoolLaunch& launch, cudaStream_t stream);
cudaError_t Enqueue(const GatherLaunch& launch, cudaStream_t stream);
cudaError_t Enqueue(const SegmentLaunch& launch, cudaStream_t stream);
cudaError_t Enqueue(const KeyLaunch& launch, cudaStream_t stream);
cudaError_t Enqueue(const UpdateLaunch& launch, cudaStream_t stream);
cudaError_t Enqueue(const CacheKeyLaunch& launch, cudaStream_t stream);
cudaError_t Enqueue(const CacheUse& use, cudaStream_t stream);
// The sorts, with *scratch_bytes of scratch; where that is null they only say there what is needed.
cudaError_t Enqueue(const SortLaunch& launch, std::size_t* scratch_bytes, cudaStream_t stream);
cudaError_t Enqueue(const DistinctLaunch& launch, std::size_t* scratch_bytes, cudaStream_t stream);

// Has the driver load all kernels of this file except those of the sorts.
cudaError_t LoadKernels();

// Keeps the stream busy until *released (mapped host memory) is not 0, at most max_ns.
cudaError_t LaunchGate(const volatile int* released, unsigned long long max_ns,
                       cudaStream_t stream);
// to[i] = from[i] for i in [0, bytes / 16), the way pooling moves memory: what it is compared with.
cudaError_t LaunchCopy(void* to, const void* from, std::int64_t bytes, cudaStream_t stream);
// Reads `bytes` (a multiple of 16) of zeros.
cudaError_t LaunchRead(void* zeros, std::int64_t bytes, cudaStream_t stream);

}  // namespace neuroshard::cuda
