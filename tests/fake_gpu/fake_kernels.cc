// The launches of kernels/cuda/kernel_launches.h on the fake runtime: the bodies of the kernels in
// loops (kernels/cuda/testing/sequential_gpu.h), on the stream's thread.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>

#include "kernels/cuda/kernel_launches.h"
#include "kernels/cuda/testing/sequential_gpu.h"
#include "tests/fake_gpu/fake_runtime.h"

namespace neuroshard::cuda {
namespace {

constexpr std::int64_t kPage = 4096;

// Stays usable only where both ends of the memory are a device's.
bool CanTouch(const void* memory, std::int64_t bytes, cudaStream_t stream) {
  if (fake_gpu::IsDeviceMemory(memory, bytes)) return true;
  fake_gpu::Break(stream, cudaErrorIllegalAddress);
  return false;
}

// As LaunchUpdateOf chooses.
std::string UpdateKernelName(EntryKind entries, int vectors_per_lane, bool cached,
                             const UpdateStep& step) {
  const bool moments = HasMoments(step.optimizer);
  const int narrow = NarrowVectors(moments);
  return fmt::format("{}UpdateKernel<{}, {}, {}>", cached ? "Slot" : "",
                     vectors_per_lane <= narrow ? std::to_string(narrow) : "kMaxVectorsPerLane",
                     entries == EntryKind::kPlain    ? "PlainOccurrence"
                     : entries == EntryKind::kScaled ? "ScaledOccurrence"
                                                     : "void",
                     moments);
}

}  // namespace

cudaError_t LoadKernels() { return cudaSuccess; }

cudaError_t LaunchFill(Batched<FillTable> batch, cudaStream_t stream) {
  return fake_gpu::Launch("FillKernel", stream, [=] { SequentialGpu(0).Fill(batch); });
}

cudaError_t LaunchLookups(Batched<LookupTable> batch, cudaStream_t stream) {
  return fake_gpu::Launch("LookupKernel", stream, [=] { SequentialGpu(0).Generate(batch); });
}

cudaError_t LaunchPool(Batched<PoolTable> batch, bool cached, cudaStream_t stream) {
  return fake_gpu::Launch(cached ? "SlotPoolKernel" : "PoolKernel", stream,
                          [=] { SequentialGpu(0).Pool(batch, cached); });
}

cudaError_t LaunchGather(Batched<GatherTable> batch, bool cached, cudaStream_t stream) {
  return fake_gpu::Launch(cached ? "SlotGatherKernel" : "GatherKernel", stream,
                          [=] { SequentialGpu(0).Gather(batch, cached); });
}

cudaError_t LaunchSegments(Batched<SegmentTable> batch, cudaStream_t stream) {
  return fake_gpu::Launch("SegmentKernel", stream, [=] { SequentialGpu(0).AddSegments(batch); });
}

cudaError_t LaunchKeys(Batched<KeyTable> batch, std::uint32_t* keys, void* occurrences, bool scaled,
                       cudaStream_t stream) {
  return fake_gpu::Launch(scaled ? "KeyKernel<ScaledOccurrence>" : "KeyKernel<PlainOccurrence>",
                          stream,
                          [=] { SequentialGpu(0).MakeRowKeys(batch, keys, occurrences, scaled); });
}

cudaError_t LaunchSort(void* scratch, std::size_t* scratch_bytes, const std::uint32_t* keys,
                       std::uint32_t* sorted_keys, const void* occurrences,
                       void* sorted_occurrences, bool scaled, std::int64_t entries, int key_bits,
                       cudaStream_t stream) {
  if (scratch == nullptr) {
    *scratch_bytes = 1;
    return cudaSuccess;
  }
  return fake_gpu::Launch("Sort", stream, [=] {
    SequentialGpu(0).Sort({.entries = entries,
                           .key_bits = key_bits,
                           .scaled = scaled,
                           .keys = keys,
                           .occurrences = occurrences,
                           .sorted_keys = sorted_keys,
                           .sorted_occurrences = sorted_occurrences,
                           .scratch = scratch,
                           .scratch_bytes = 1});
  });
}

cudaError_t LaunchCacheKeys(Batched<CacheKeyTable> batch, int row_bits, std::uint64_t* keys,
                            cudaStream_t stream) {
  return fake_gpu::Launch("CacheKeyKernel", stream,
                          [=] { SequentialGpu(0).MakeCacheKeys(batch, row_bits, keys); });
}

cudaError_t LaunchKeepDistinct(void* scratch, std::size_t* scratch_bytes, std::uint64_t* keys,
                               std::uint64_t* sorted_keys, std::int64_t* num_kept,
                               std::int64_t entries, int key_bits, cudaStream_t stream) {
  if (scratch == nullptr) {
    *scratch_bytes = 1;
    return cudaSuccess;
  }
  return fake_gpu::Launch("KeepDistinct", stream, [=] {
    SequentialGpu(0).KeepDistinct({.entries = entries,
                                   .key_bits = key_bits,
                                   .keys = keys,
                                   .sorted_keys = sorted_keys,
                                   .num_kept = num_kept,
                                   .scratch = scratch,
                                   .scratch_bytes = 1});
  });
}

cudaError_t LaunchCaches(CacheUse use, cudaStream_t stream) {
  return fake_gpu::Launch("CacheKernel", stream, [=] { SequentialGpu(0).UseCaches(use); });
}

cudaError_t LaunchUpdate(Batched<UpdateTable> batch, EntryKind entries, int vectors_per_lane,
                         bool cached, UpdateStep step, cudaStream_t stream) {
  return fake_gpu::Launch(UpdateKernelName(entries, vectors_per_lane, cached, step), stream, [=] {
    SequentialGpu(0).Update({batch, entries, vectors_per_lane, cached, step});
  });
}

cudaError_t LaunchGate(const volatile int* released, unsigned long long max_ns,
                       cudaStream_t stream) {
  return fake_gpu::Launch("GateKernel", stream, [=] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(max_ns);
    int& opened = const_cast<int&>(*released);
    while (std::atomic_ref<int>(opened).load() == 0 && std::chrono::steady_clock::now() < end) {
      fake_gpu::LetOthersRun();
    }
  });
}

cudaError_t LaunchCopy(void* to, const void* from, std::int64_t bytes, cudaStream_t stream) {
  return fake_gpu::Launch("CopyKernel", stream, [=] {
    if (CanTouch(to, bytes, stream) && CanTouch(from, bytes, stream)) std::memcpy(to, from, bytes);
  });
}

// One number a page: what it flushes here is nobody's cache.
cudaError_t LaunchRead(void* zeros, std::int64_t bytes, cudaStream_t stream) {
  return fake_gpu::Launch("ReadKernel", stream, [=] {
    if (!CanTouch(zeros, bytes, stream)) return;
    const volatile char* memory = static_cast<const char*>(zeros);
    for (std::int64_t i = 0; i < bytes; i += kPage) (void)memory[i];
  });
}

}  // namespace neuroshard::cuda
