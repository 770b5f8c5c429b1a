// The kernels, one function a launch; all that the host's compiler sees of device code. Every
// function enqueues on the stream and returns the launch's error, which does not include what goes
// wrong on the device later.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/cached_rows.h"
#include "kernels/cuda/generated_values.h"
#include "kernels/cuda/pooling.h"
#include "kernels/cuda/row_keys.h"
#include "kernels/cuda/row_update.h"
#include "kernels/cuda/table_blocks.h"

namespace neuroshard::cuda {

cudaError_t LaunchFill(Batched<FillTable> batch, cudaStream_t stream);
cudaError_t LaunchLookups(Batched<LookupTable> batch, cudaStream_t stream);
// cached: of tables with a cache.
cudaError_t LaunchPool(Batched<PoolTable> batch, bool cached, cudaStream_t stream);
cudaError_t LaunchGather(Batched<GatherTable> batch, bool cached, cudaStream_t stream);
cudaError_t LaunchSegments(Batched<SegmentTable> batch, cudaStream_t stream);
cudaError_t LaunchKeys(Batched<KeyTable> batch, std::uint32_t* keys, void* occurrences, bool scaled,
                       cudaStream_t stream);
// scratch null: only says in *scratch_bytes how much is needed.
cudaError_t LaunchSort(void* scratch, std::size_t* scratch_bytes, const std::uint32_t* keys,
                       std::uint32_t* sorted_keys, const void* occurrences,
                       void* sorted_occurrences, bool scaled, std::int64_t entries, int key_bits,
                       cudaStream_t stream);
cudaError_t LaunchCacheKeys(Batched<CacheKeyTable> batch, int row_bits, std::uint64_t* keys,
                            cudaStream_t stream);
// Sorts keys; each once takes their place, and *num_kept is how many those are. scratch as above.
cudaError_t LaunchKeepDistinct(void* scratch, std::size_t* scratch_bytes, std::uint64_t* keys,
                               std::uint64_t* sorted_keys, std::int64_t* num_kept,
                               std::int64_t entries, int key_bits, cudaStream_t stream);
cudaError_t LaunchCaches(CacheUse use, cudaStream_t stream);
// vectors_per_lane: the most of the tables in the launch.
cudaError_t LaunchUpdate(Batched<UpdateTable> batch, EntryKind entries, int vectors_per_lane,
                         bool cached, UpdateStep step, cudaStream_t stream);

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
