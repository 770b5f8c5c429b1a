#include "kernels/cuda/kernel_launches.h"
#include "kernels/cuda/table_blocks.h"

namespace neuroshard::cuda {
namespace {

// The lanes of one row: a power of two within a warp, so that exchanges stay inside it.
class LaneGroup {
 public:
  __device__ LaneGroup(int lanes, int thread)
      : lanes_(lanes),
        lane_(thread % lanes),
        mask_(lanes == kWarp ? 0xffffffffu
                             : ((1u << lanes) - 1) << (thread % kWarp / lanes * lanes)) {}
  __device__ int lane() const { return lane_; }
  __device__ int lanes() const { return lanes_; }
  __device__ float Sum(float value) const {
    return OverLanes(value, [](float a, float b) { return a + b; });
  }
  __device__ std::uint64_t Min(std::uint64_t value) const {
    using Word = unsigned long long;  // which shuffles take
    return OverLanes(static_cast<Word>(value), [](Word a, Word b) { return b < a ? b : a; });
  }
  __device__ void Agree() const { __syncwarp(mask_); }

 private:
  template <typename T, typename Combine>
  __device__ T OverLanes(T value, Combine combine) const {
    for (int distance = lanes_ / 2; distance > 0; distance /= 2) {
      value = combine(value, __shfl_xor_sync(mask_, value, distance));
    }
    return value;
  }

  int lanes_;
  int lane_;
  unsigned mask_;
};

// The table of this block, as FindTable's: every lane of a warp looks at another one, so that up to
// 32 tables take one trip to memory, and up to 1,024 two. Of all lanes.
template <typename Table>
__device__ TableBlock TableOfBlock(const Batched<Table>& batch) {
  const std::int64_t block = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int low = 0, high = batch.num_tables;  // of the tables within is the last that starts before
  while (high - low > 1) {
    const int step = (high - low + kWarp - 1) / kWarp, mine = low + lane * step;
    const bool begun = mine < high && __ldg(batch.first_block + mine) <= block;
    const int last = __popc(__ballot_sync(0xffffffffu, begun)) - 1;
    low += last * step;
    high = low + step < high ? low + step : high;
  }
  return {low, block - __ldg(batch.first_block + low)};
}

__global__ void __launch_bounds__(kThreads) FillKernel(Batched<FillTable> batch) {
  const TableBlock found = TableOfBlock(batch);
  const FillTable table = batch.tables[found.table];
  FillBlockOfAnyType(table, found.block, static_cast<int>(threadIdx.x));
}

__global__ void __launch_bounds__(kThreads) LookupKernel(Batched<LookupTable> batch) {
  const TableBlock found = TableOfBlock(batch);
  GenerateLookups(batch.tables[found.table], found.block, static_cast<int>(threadIdx.x));
}

template <bool kCached>
__device__ void PoolBlock(const Batched<PoolTable>& batch) {
  const TableBlock found = TableOfBlock(batch);
  const PoolTable table = batch.tables[found.table];
  PoolBagsOfAnyType<kCached>(table, found.block, static_cast<int>(threadIdx.x));
}

__global__ void __launch_bounds__(kThreads, 3) PoolKernel(Batched<PoolTable> batch) {
  PoolBlock<false>(batch);
}

// Pools tables with a cache, whose rows are in its slots too; apart, as they need more registers.
__global__ void __launch_bounds__(kThreads, 2) SlotPoolKernel(Batched<PoolTable> batch) {
  PoolBlock<true>(batch);
}

template <bool kCached>
__device__ void GatherBlock(const Batched<GatherTable>& batch) {
  const TableBlock found = TableOfBlock(batch);
  const GatherTable table = batch.tables[found.table];
  GatherRowsOfAnyType<kCached>(table, found.block, static_cast<int>(threadIdx.x));
}

__global__ void __launch_bounds__(kThreads, 2) GatherKernel(Batched<GatherTable> batch) {
  GatherBlock<false>(batch);
}

__global__ void __launch_bounds__(kThreads, 2) SlotGatherKernel(Batched<GatherTable> batch) {
  GatherBlock<true>(batch);
}

__global__ void __launch_bounds__(kThreads) SegmentKernel(Batched<SegmentTable> batch) {
  const TableBlock found = TableOfBlock(batch);
  const SegmentTable table = batch.tables[found.table];
  SumSegments(table, found.block, static_cast<int>(threadIdx.x));
}

// BagOf for all lanes of a warp: each looks at another bag, so that 2^16 bags take four trips to
// memory.
struct BagOfWarp {
  __device__ std::int64_t operator()(const std::int64_t* offsets, std::int64_t low,
                                     std::int64_t high, std::int64_t position) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    while (low < high) {
      const std::int64_t step = (high - low + kWarp - 1) / kWarp, mine = low + (lane + 1) * step;
      const bool begun = mine <= high && __ldg(offsets + mine) <= position;
      low += __popc(__ballot_sync(0xffffffffu, begun)) * step;
      high = low + step - 1 < high ? low + step - 1 : high;
    }
    return low;
  }
};

template <typename Occurrence>
__global__ void __launch_bounds__(kThreads)
    KeyKernel(Batched<KeyTable> batch, std::uint32_t* keys, Occurrence* occurrences) {
  const TableBlock found = TableOfBlock(batch);
  const KeyTable table = batch.tables[found.table];
  MakeKeys(table, keys, occurrences, found.block, static_cast<int>(threadIdx.x), BagOfWarp());
}

__global__ void __launch_bounds__(kThreads)
    CacheKeyKernel(Batched<CacheKeyTable> batch, int row_bits, std::uint64_t* keys) {
  const TableBlock found = TableOfBlock(batch);
  MakeCacheKeysOfBlock(batch.tables[found.table], row_bits, keys, found.block,
                       static_cast<int>(threadIdx.x));
}

__global__ void __launch_bounds__(kThreads) CacheKernel(CacheUse use) {
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t warp = std::int64_t{blockIdx.x} * (kThreads / kWarp) + thread / kWarp;
  UseSets(use, warp, LaneGroup(kWarp, thread));
}

// Tables of up to kMost vectors a lane. kMoments: ChunkUpdate's.
template <int kMost, typename Occurrence, bool kMoments, bool kCached>
__device__ void UpdateBlock(const Batched<UpdateTable>& batch, const UpdateStep& step) {
  const TableBlock found = TableOfBlock(batch);
  const UpdateTable table = batch.tables[found.table];
  const int lanes = UpdateLanes(table.vectors);
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t chunk = found.block * (kThreads / lanes) + thread / lanes;
  if (chunk >= Chunks(table.entries)) return;  // for all lanes of the group
  const LaneGroup group(lanes, thread);
  if constexpr (kMost == 2) {
    if (VectorsPerLane(table.vectors) == 1) {
      return UpdateChunk<1, Occurrence, kMoments, kCached>(table, step, chunk, group);
    }
  }
  UpdateChunk<kMost, Occurrence, kMoments, kCached>(table, step, chunk, group);
}

template <int kMost, typename Occurrence, bool kMoments>
__global__ void __launch_bounds__(kThreads, kMost <= 2 ? 2 : 1)
    UpdateKernel(Batched<UpdateTable> batch, UpdateStep step) {
  UpdateBlock<kMost, Occurrence, kMoments, false>(batch, step);
}

template <int kMost, typename Occurrence, bool kMoments>
__global__ void __launch_bounds__(kThreads, kMost <= 2 ? 2 : 1)
    SlotUpdateKernel(Batched<UpdateTable> batch, UpdateStep step) {
  UpdateBlock<kMost, Occurrence, kMoments, true>(batch, step);
}

__global__ void GateKernel(const volatile int* released, unsigned long long max_ns) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (*released == 0 && now - begin < max_ns);
}

__global__ void __launch_bounds__(kThreads)
    CopyKernel(uint4* to, const uint4* from, std::int64_t count) {
  constexpr int kInFlight = 4;
  const std::int64_t begin = std::int64_t{blockIdx.x} * kThreads * kInFlight + threadIdx.x;
  uint4 values[kInFlight];
#pragma unroll
  for (int k = 0; k < kInFlight; ++k) {
    const std::int64_t i = begin + k * kThreads;
    if (i < count) values[k] = __ldg(from + i);
  }
#pragma unroll
  for (int k = 0; k < kInFlight; ++k) {
    const std::int64_t i = begin + k * kThreads;
    if (i < count) to[i] = values[k];
  }
}

// What is read is written back where it is not 0, which it never is: the compiler cannot know.
__global__ void __launch_bounds__(kThreads) ReadKernel(uint4* zeros, std::int64_t count) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const uint4 value = zeros[i];
  if ((value.x | value.y | value.z | value.w) != 0) zeros[0] = value;
}

// Launches `kernel` on so many blocks of kThreads.
template <typename... Parameters, typename... Arguments>
cudaError_t Run(void (*kernel)(Parameters...), std::int64_t blocks, cudaStream_t stream,
                const Arguments&... arguments) {
  kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(arguments...);
  return cudaGetLastError();
}

template <typename Occurrence, bool kMoments>
cudaError_t EnqueueUpdate(const UpdateLaunch& launch, cudaStream_t stream) {
  constexpr int kNarrow = NarrowVectors(kMoments), kWide = kMaxVectorsPerLane;
  const bool narrow = launch.vectors_per_lane <= kNarrow;
  auto* kernel = narrow ? UpdateKernel<kNarrow, Occurrence, kMoments>
                        : UpdateKernel<kWide, Occurrence, kMoments>;
  if (launch.cached) {
    kernel = narrow ? SlotUpdateKernel<kNarrow, Occurrence, kMoments>
                    : SlotUpdateKernel<kWide, Occurrence, kMoments>;
  }
  return Run(kernel, launch.blocks, stream, launch, launch.step);
}

template <bool kMoments>
cudaError_t EnqueueUpdateOf(const UpdateLaunch& launch, cudaStream_t stream) {
  switch (launch.entries) {
    case EntryKind::kPlain:
      return EnqueueUpdate<PlainOccurrence, kMoments>(launch, stream);
    case EntryKind::kScaled:
      return EnqueueUpdate<ScaledOccurrence, kMoments>(launch, stream);
    case EntryKind::kPartial:
      return EnqueueUpdate<void, kMoments>(launch, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t LoadKernels() {
  const void* const kernels[] = {
      reinterpret_cast<const void*>(&FillKernel),
      reinterpret_cast<const void*>(&LookupKernel),
      reinterpret_cast<const void*>(&PoolKernel),
      reinterpret_cast<const void*>(&SlotPoolKernel),
      reinterpret_cast<const void*>(&GatherKernel),
      reinterpret_cast<const void*>(&SlotGatherKernel),
      reinterpret_cast<const void*>(&SegmentKernel),
      reinterpret_cast<const void*>(&KeyKernel<PlainOccurrence>),
      reinterpret_cast<const void*>(&KeyKernel<ScaledOccurrence>),
      reinterpret_cast<const void*>(&CacheKeyKernel),
      reinterpret_cast<const void*>(&CacheKernel),
      reinterpret_cast<const void*>(&UpdateKernel<2, PlainOccurrence, false>),
      reinterpret_cast<const void*>(&UpdateKernel<1, PlainOccurrence, true>),
      reinterpret_cast<const void*>(&UpdateKernel<2, ScaledOccurrence, false>),
      reinterpret_cast<const void*>(&UpdateKernel<1, ScaledOccurrence, true>),
      reinterpret_cast<const void*>(&UpdateKernel<2, void, false>),
      reinterpret_cast<const void*>(&UpdateKernel<1, void, true>),
      reinterpret_cast<const void*>(&UpdateKernel<kMaxVectorsPerLane, PlainOccurrence, false>),
      reinterpret_cast<const void*>(&UpdateKernel<kMaxVectorsPerLane, PlainOccurrence, true>),
      reinterpret_cast<const void*>(&UpdateKernel<kMaxVectorsPerLane, ScaledOccurrence, false>),
      reinterpret_cast<const void*>(&UpdateKernel<kMaxVectorsPerLane, ScaledOccurrence, true>),
      reinterpret_cast<const void*>(&UpdateKernel<kMaxVectorsPerLane, void, false>),
      reinterpret_cast<const void*>(&UpdateKernel<kMaxVectorsPerLane, void, true>),
      reinterpret_cast<const void*>(&SlotUpdateKernel<2, PlainOccurrence, false>),
      reinterpret_cast<const void*>(&SlotUpdateKernel<1, PlainOccurrence, true>),
      reinterpret_cast<const void*>(&SlotUpdateKernel<2, ScaledOccurrence, false>),
      reinterpret_cast<const void*>(&SlotUpdateKernel<1, ScaledOccurrence, true>),
      reinterpret_cast<const void*>(&SlotUpdateKernel<2, void, false>),
      reinterpret_cast<const void*>(&SlotUpdateKernel<1, void, true>),
      reinterpret_cast<const void*>(&SlotUpdateKernel<kMaxVectorsPerLane, PlainOccurrence, false>),
      reinterpret_cast<const void*>(&SlotUpdateKernel<kMaxVectorsPerLane, PlainOccurrence, true>),
      reinterpret_cast<const void*>(&SlotUpdateKernel<kMaxVectorsPerLane, ScaledOccurrence, false>),
      reinterpret_cast<const void*>(&SlotUpdateKernel<kMaxVectorsPerLane, ScaledOccurrence, true>),
      reinterpret_cast<const void*>(&SlotUpdateKernel<kMaxVectorsPerLane, void, false>),
      reinterpret_cast<const void*>(&SlotUpdateKernel<kMaxVectorsPerLane, void, true>),
      reinterpret_cast<const void*>(&GateKernel),
      reinterpret_cast<const void*>(&CopyKernel),
      reinterpret_cast<const void*>(&ReadKernel)};
  for (const void* kernel : kernels) {
    cudaFuncAttributes attributes;
    if (const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
        error != cudaSuccess) {
      return error;
    }
  }
  return cudaSuccess;
}

cudaError_t Enqueue(const FillLaunch& launch, cudaStream_t stream) {
  return Run(FillKernel, launch.blocks, stream, launch);
}

cudaError_t Enqueue(const LookupLaunch& launch, cudaStream_t stream) {
  return Run(LookupKernel, launch.blocks, stream, launch);
}

cudaError_t Enqueue(const PoolLaunch& launch, cudaStream_t stream) {
  return Run(launch.cached ? SlotPoolKernel : PoolKernel, launch.blocks, stream, launch);
}

cudaError_t Enqueue(const GatherLaunch& launch, cudaStream_t stream) {
  return Run(launch.cached ? SlotGatherKernel : GatherKernel, launch.blocks, stream, launch);
}

cudaError_t Enqueue(const SegmentLaunch& launch, cudaStream_t stream) {
  return Run(SegmentKernel, launch.blocks, stream, launch);
}

cudaError_t Enqueue(const KeyLaunch& launch, cudaStream_t stream) {
  void* const occurrences = launch.occurrences;
  return launch.scaled ? Run(KeyKernel<ScaledOccurrence>, launch.blocks, stream, launch,
                             launch.keys, static_cast<ScaledOccurrence*>(occurrences))
                       : Run(KeyKernel<PlainOccurrence>, launch.blocks, stream, launch, launch.keys,
                             static_cast<PlainOccurrence*>(occurrences));
}

cudaError_t Enqueue(const UpdateLaunch& launch, cudaStream_t stream) {
  return HasMoments(launch.step.optimizer) ? EnqueueUpdateOf<true>(launch, stream)
                                           : EnqueueUpdateOf<false>(launch, stream);
}

cudaError_t Enqueue(const CacheKeyLaunch& launch, cudaStream_t stream) {
  return Run(CacheKeyKernel, launch.blocks, stream, launch, launch.row_bits, launch.keys);
}

cudaError_t Enqueue(const CacheUse& use, cudaStream_t stream) {
  return Run(CacheKernel, use.blocks, stream, use);
}

cudaError_t LaunchGate(const volatile int* released, unsigned long long max_ns,
                       cudaStream_t stream) {
  GateKernel<<<1, 1, 0, stream>>>(released, max_ns);
  return cudaGetLastError();
}

cudaError_t LaunchCopy(void* to, const void* from, std::int64_t bytes, cudaStream_t stream) {
  const std::int64_t count = bytes / 16;
  return Run(CopyKernel, (count + 4 * kThreads - 1) / (4 * kThreads), stream,
             static_cast<uint4*>(to), static_cast<const uint4*>(from), count);
}

cudaError_t LaunchRead(void* zeros, std::int64_t bytes, cudaStream_t stream) {
  const std::int64_t count = bytes / 16;
  return Run(ReadKernel, (count + kThreads - 1) / kThreads, stream, static_cast<uint4*>(zeros),
             count);
}

}  // namespace neuroshard::cuda
