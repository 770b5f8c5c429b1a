#include "kernels/cuda/cuda_gpu.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "common/base/bytes.h"
#include "kernels/cuda/kernel_launches.h"
#include "kernels/machine/machine.h"

namespace neuroshard::cuda {

std::string VersionText(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string WhyNoDevice(cudaError_t error, int driver, int runtime) {
  if (driver == 0) return "there is no NVIDIA driver on this host, no libcuda.so.1 at least";
  if (driver / 1000 < runtime / 1000) {
    return fmt::format(
        "the NVIDIA driver of this host supports CUDA up to {}, and this worker was built with {}: "
        "update the driver, or build the worker with an older CUDA toolkit",
        VersionText(driver), VersionText(runtime));
  }
  return fmt::format("there is no usable CUDA device on this host: {}",
                     cudaGetErrorString(error == cudaSuccess ? cudaErrorNoDevice : error));
}

StatusOr<int> CountCudaDevices() {
  int count = 0, driver = 0, runtime = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  (void)cudaGetLastError();
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  return Unavailable("{}", WhyNoDevice(error, driver, runtime));
}

Status CudaStatus(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  (void)cudaGetLastError();
  return Internal("{}: {}", what, cudaGetErrorString(error));
}

StatusOr<std::shared_ptr<CudaGpu>> CudaGpu::Create(int device) {
  cudaStream_t stream = nullptr;
  cudaError_t error = cudaSetDevice(device);
  if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) {
    return Unavailable("cuda device {}: {}", device, Message(CudaStatus(error, "cannot be used")));
  }
  return std::shared_ptr<CudaGpu>(new CudaGpu(device, stream));
}

CudaGpu::~CudaGpu() {
  Use();
  DropKept();
  (void)cudaStreamDestroy(stream_);
}

void CudaGpu::Note(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return;
  Status status = CudaStatus(error, what);
  const MutexLock lock(mutex_);
  if (status_.ok()) status_ = std::move(status);
}

void CudaGpu::Probe() {
  Use();
  const cudaError_t state = cudaStreamQuery(stream_);
  if (state == cudaErrorNotReady) {
    (void)cudaGetLastError();
  } else {
    Note(state, "found broken");
  }
}

Status CudaGpu::LoadKernels() {
  Use();
  Note(cuda::LoadKernels(), "loading kernels");
  return LoadSorts();
}

Status CudaGpu::LoadSorts() {
  // Sorts of a block and of a device are different kernels.
  constexpr std::int64_t kFew = 64, kMany = 1 << 20;
  std::byte* memory = nullptr;
  for (const std::int64_t entries : {kFew, kMany}) {
    NS_ASSIGN_OR_RETURN(const std::int64_t scratch, DistinctScratchBytes(entries, 64));
    const std::int64_t arrays = 16 * entries + 256;
    NS_ASSIGN_OR_RETURN(memory, Allocate(arrays + scratch));
    auto* const keys = reinterpret_cast<std::uint64_t*>(memory);
    Note(cudaMemsetAsync(memory, 0, arrays, stream_), "loading kernels");
    KeepDistinct({.entries = entries,
                  .key_bits = 64,
                  .keys = keys,
                  .sorted_keys = keys + entries,
                  .num_kept = reinterpret_cast<std::int64_t*>(keys + 2 * entries),
                  .scratch = memory + arrays,
                  .scratch_bytes = scratch});
    Note(cudaStreamSynchronize(stream_), "loading kernels");
    Free(memory);
  }
  for (const bool scaled : {false, true}) {
    for (const std::int64_t entries : {kFew, kMany}) {
      NS_ASSIGN_OR_RETURN(const std::int64_t scratch, SortScratchBytes(entries, scaled, 32));
      const std::int64_t arrays = 2 * entries * (4 + (scaled ? 8 : 4));
      NS_ASSIGN_OR_RETURN(memory, Allocate(arrays + scratch));
      Note(cudaMemsetAsync(memory, 0, arrays, stream_), "loading kernels");
      std::byte* const sorted = memory + arrays / 2;
      Sort({.entries = entries,
            .key_bits = 32,
            .scaled = scaled,
            .keys = reinterpret_cast<const std::uint32_t*>(memory + entries * (scaled ? 8 : 4)),
            .occurrences = memory,
            .sorted_keys = reinterpret_cast<std::uint32_t*>(sorted + entries * (scaled ? 8 : 4)),
            .sorted_occurrences = sorted,
            .scratch = memory + arrays,
            .scratch_bytes = scratch});
      Note(cudaStreamSynchronize(stream_), "loading kernels");
      Free(memory);
    }
  }
  return status();
}

Status CudaGpu::status() const {
  const MutexLock lock(mutex_);
  return status_;
}

StatusOr<std::byte*> CudaGpu::Allocate(std::int64_t bytes) {
  Use();
  NS_RETURN_IF_ERROR(status());
  const std::int64_t available = AvailableBytes();
  void* memory = nullptr;
  const cudaError_t error =
      bytes <= available ? cudaMalloc(&memory, bytes) : cudaErrorMemoryAllocation;
  if (error == cudaErrorMemoryAllocation) {  // leaves the device as it was
    (void)cudaGetLastError();
    return ResourceExhausted("{} do not fit the {} that are available", FormatBytes(bytes),
                             FormatBytes(available));
  }
  Note(error, "cudaMalloc");
  NS_RETURN_IF_ERROR(status());
  return static_cast<std::byte*>(memory);
}

void CudaGpu::Free(std::byte* memory) {
  Use();
  Note(cudaFree(memory), "cudaFree");
}

std::int64_t CudaGpu::AvailableBytes() const {
  Use();
  std::size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return 0;
  return std::max<std::int64_t>(0, static_cast<std::int64_t>(free) - kReservedBytes);
}

// Kernels find the memory where the host does, by unified addressing.
StatusOr<std::byte*> CudaGpu::AllocateOnHost(std::int64_t bytes) {
  Use();
  NS_RETURN_IF_ERROR(status());
  if (bytes > kept_bytes_) {
    DropKept();
    const std::int64_t available = AvailableHostBytes();
    void* memory = nullptr;
    const cudaError_t error = bytes <= available
                                  ? cudaHostAlloc(&memory, bytes, cudaHostAllocMapped)
                                  : cudaErrorMemoryAllocation;
    if (error == cudaErrorMemoryAllocation) {  // leaves the device as it was
      (void)cudaGetLastError();
      return ResourceExhausted("{} cannot be pinned, {} are available", FormatBytes(bytes),
                               FormatBytes(available));
    }
    Note(error, "cudaHostAlloc");
    NS_RETURN_IF_ERROR(status());
    kept_ = static_cast<std::byte*>(memory);
    kept_bytes_ = bytes;
  }
  pinned_[kept_] = std::exchange(kept_bytes_, 0);
  return std::exchange(kept_, nullptr);
}

void CudaGpu::FreeOnHost(std::byte* memory) {
  const auto found = pinned_.find(memory);
  if (found->second > kept_bytes_) {
    DropKept();
    kept_ = memory;
    kept_bytes_ = found->second;
  } else {
    Use();
    Note(cudaFreeHost(memory), "cudaFreeHost");
  }
  pinned_.erase(found);
}

void CudaGpu::DropKept() {
  kept_bytes_ = 0;
  if (kept_ == nullptr) return;
  Use();
  Note(cudaFreeHost(std::exchange(kept_, nullptr)), "cudaFreeHost");
}

bool CudaGpu::IsPinned(const void* memory) const {
  const auto* const address = static_cast<const std::byte*>(memory);
  const auto after = pinned_.upper_bound(address);
  if (after == pinned_.begin()) return false;
  const auto& [begin, bytes] = *std::prev(after);
  return address < begin + bytes;
}

std::int64_t CudaGpu::AvailableHostBytes() const { return AvailableMemoryBytes() + kept_bytes_; }

Status CudaGpu::Finish(cudaError_t enqueued, std::string_view what) {
  Note(enqueued, what);
  Note(cudaStreamSynchronize(stream_), what);
  return status();
}

Status CudaGpu::CopyIn(void* device, const void* host, std::int64_t bytes) {
  Use();
  if (IsPinned(device)) {
    NS_RETURN_IF_ERROR(Finish(cudaSuccess, "before a copy to the host's memory"));
    std::memcpy(device, host, bytes);
    return absl::OkStatus();
  }
  return Finish(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_),
                "copying to the device");
}

Status CudaGpu::CopyOut(void* host, const void* device, std::int64_t bytes) {
  Use();
  if (IsPinned(device)) {
    NS_RETURN_IF_ERROR(Finish(cudaSuccess, "before a copy from the host's memory"));
    std::memcpy(host, device, bytes);
    return absl::OkStatus();
  }
  return Finish(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_),
                "copying from the device");
}

void CudaGpu::Fill(const Batched<FillTable>& batch) {
  if (batch.blocks == 0) return;
  Use();
  Note(LaunchFill(batch, stream_), "initialising weights");
}

void CudaGpu::Generate(const Batched<LookupTable>& batch) {
  if (batch.blocks == 0) return;
  Use();
  Note(LaunchLookups(batch, stream_), "making ids");
}

void CudaGpu::Pool(const Batched<PoolTable>& batch, bool cached) {
  if (batch.blocks == 0) return;
  Use();
  Note(LaunchPool(batch, cached, stream_), "pooling rows");
}

void CudaGpu::Gather(const Batched<GatherTable>& batch, bool cached) {
  if (batch.blocks == 0) return;
  Use();
  Note(LaunchGather(batch, cached, stream_), "gathering rows");
}

void CudaGpu::AddSegments(const Batched<SegmentTable>& batch) {
  if (batch.blocks == 0) return;
  Use();
  Note(LaunchSegments(batch, stream_), "adding segments of bags");
}

void CudaGpu::MakeRowKeys(const Batched<KeyTable>& batch, std::uint32_t* keys, void* occurrences,
                          bool scaled) {
  if (batch.blocks == 0) return;
  Use();
  Note(LaunchKeys(batch, keys, occurrences, scaled, stream_), "making row keys");
}

StatusOr<std::int64_t> CudaGpu::SortScratchBytes(std::int64_t entries, bool scaled, int key_bits) {
  Use();
  std::size_t bytes = 0;
  Note(LaunchSort(nullptr, &bytes, nullptr, nullptr, nullptr, nullptr, scaled, entries, key_bits,
                  stream_),
       "sizing the sort");
  NS_RETURN_IF_ERROR(status());
  return static_cast<std::int64_t>(std::max<std::size_t>(bytes, 1));
}

void CudaGpu::Sort(const SortLaunch& launch) {
  if (launch.entries == 0) return;
  Use();
  auto bytes = static_cast<std::size_t>(launch.scratch_bytes);
  Note(LaunchSort(launch.scratch, &bytes, launch.keys, launch.sorted_keys, launch.occurrences,
                  launch.sorted_occurrences, launch.scaled, launch.entries, launch.key_bits,
                  stream_),
       "sorting ids");
}

void CudaGpu::Update(const UpdateLaunch& launch) {
  if (launch.batch.blocks == 0) return;
  Use();
  Note(LaunchUpdate(launch.batch, launch.entries, launch.vectors_per_lane, launch.cached,
                    launch.step, stream_),
       "updating rows");
}

void CudaGpu::MakeCacheKeys(const Batched<CacheKeyTable>& batch, int row_bits,
                            std::uint64_t* keys) {
  if (batch.blocks == 0) return;
  Use();
  Note(LaunchCacheKeys(batch, row_bits, keys, stream_), "making cache keys");
}

StatusOr<std::int64_t> CudaGpu::DistinctScratchBytes(std::int64_t entries, int key_bits) {
  Use();
  std::size_t bytes = 0;
  Note(LaunchKeepDistinct(nullptr, &bytes, nullptr, nullptr, nullptr, entries, key_bits, stream_),
       "sizing the sort of cache keys");
  NS_RETURN_IF_ERROR(status());
  return static_cast<std::int64_t>(std::max<std::size_t>(bytes, 1));
}

void CudaGpu::KeepDistinct(const DistinctLaunch& launch) {
  if (launch.entries == 0) return;
  Use();
  auto bytes = static_cast<std::size_t>(launch.scratch_bytes);
  Note(LaunchKeepDistinct(launch.scratch, &bytes, launch.keys, launch.sorted_keys, launch.num_kept,
                          launch.entries, launch.key_bits, stream_),
       "sorting cache keys");
}

void CudaGpu::UseCaches(const CacheUse& use) {
  if (use.blocks == 0) return;
  Use();
  Note(LaunchCaches(use, stream_), "fetching rows");
}

}  // namespace neuroshard::cuda
