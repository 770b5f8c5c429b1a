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

// The kernel that Enqueue(const UpdateLaunch&) of embedding_kernels.cu chooses.
std::string UpdateKernelName(const UpdateLaunch& launch) {
  const bool moments = HasMoments(launch.step.optimizer);
  const int narrow = NarrowVectors(moments);
  return fmt::format(
      "{}UpdateKernel<{}, {}, {}>", launch.cached ? "Slot" : "",
      launch.vectors_per_lane <= narrow ? std::to_string(narrow) : "kMaxVectorsPerLane",
      launch.entries == EntryKind::kPlain    ? "PlainOccurrence"
      : launch.entries == EntryKind::kScaled ? "ScaledOccurrence"
                                             : "void",
      moments);
}

cudaError_t Run(const std::string& kernel, const GpuLaunch& launch, cudaStream_t stream) {
  return fake_gpu::Launch(kernel, stream, [=] { SequentialGpu(0).Launch(launch); });
}

cudaError_t RunSort(const char* name, const GpuLaunch& launch, const void* scratch,
                    std::size_t* scratch_bytes, cudaStream_t stream) {
  if (scratch != nullptr) return Run(name, launch, stream);
  *scratch_bytes = 1;
  return cudaSuccess;
}

}  // namespace

cudaError_t LoadKernels() { return cudaSuccess; }

cudaError_t Enqueue(const FillLaunch& launch, cudaStream_t stream) {
  return Run("FillKernel", launch, stream);
}

cudaError_t Enqueue(const LookupLaunch& launch, cudaStream_t stream) {
  return Run("LookupKernel", launch, stream);
}

cudaError_t Enqueue(const PoolLaunch& launch, cudaStream_t stream) {
  return Run(launch.cached ? "SlotPoolKernel" : "PoolKernel", launch, stream);
}

cudaError_t Enqueue(const GatherLaunch& launch, cudaStream_t stream) {
  return Run(launch.cached ? "SlotGatherKernel" : "GatherKernel", launch, stream);
}

cudaError_t Enqueue(const SegmentLaunch& launch, cudaStream_t stream) {
  return Run("SegmentKernel", launch, stream);
}

cudaError_t Enqueue(const KeyLaunch& launch, cudaStream_t stream) {
  return Run(launch.scaled ? "KeyKernel<ScaledOccurrence>" : "KeyKernel<PlainOccurrence>", launch,
             stream);
}

cudaError_t Enqueue(const UpdateLaunch& launch, cudaStream_t stream) {
  return Run(UpdateKernelName(launch), launch, stream);
}

cudaError_t Enqueue(const CacheKeyLaunch& launch, cudaStream_t stream) {
  return Run("CacheKeyKernel", launch, stream);
}

cudaError_t Enqueue(const CacheUse& use, cudaStream_t stream) {
  return Run("CacheKernel", use, stream);
}

cudaError_t Enqueue(const SortLaunch& launch, std::size_t* scratch_bytes, cudaStream_t stream) {
  return RunSort("Sort", launch, launch.scratch, scratch_bytes, stream);
}

cudaError_t Enqueue(const DistinctLaunch& launch, std::size_t* scratch_bytes, cudaStream_t stream) {
  return RunSort("KeepDistinct", launch, launch.scratch, scratch_bytes, stream);
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
