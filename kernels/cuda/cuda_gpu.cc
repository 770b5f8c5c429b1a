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

// Sorts of a block and of a device are different kernels. All use the same memory, in turn.
Status CudaGpu::LoadSorts() {
  for (const std::int64_t entries : {std::int64_t{64}, std::int64_t{1} << 20}) {
    SortLaunch plain{.entries = entries, .key_bits = 32};
    SortLaunch scaled{.entries = entries, .key_bits = 32, .scaled = true};
    DistinctLaunch distinct{.entries = entries, .key_bits = 64};
    NS_ASSIGN_OR_RETURN(plain.scratch_bytes, ScratchBytes(plain));
    NS_ASSIGN_OR_RETURN(scaled.scratch_bytes, ScratchBytes(scaled));
    NS_ASSIGN_OR_RETURN(distinct.scratch_bytes, ScratchBytes(distinct));
    const std::int64_t wide = 8 * entries, narrow = 4 * entries, arrays = 2 * (wide + narrow);
    NS_ASSIGN_OR_RETURN(std::byte* const memory,
                        Allocate(arrays + std::max({plain.scratch_bytes, scaled.scratch_bytes,
                                                    distinct.scratch_bytes})));
    Note(cudaMemsetAsync(memory, 0, arrays, stream_), "loading kernels");
    for (SortLaunch* const sort : {&plain, &scaled}) {
      sort->occurrences = memory;
      sort->sorted_occurrences = memory + wide;
      sort->keys = reinterpret_cast<const std::uint32_t*>(memory + 2 * wide);
      sort->sorted_keys = reinterpret_cast<std::uint32_t*>(memory + 2 * wide + narrow);
      sort->scratch = memory + arrays;
      Launch(*sort);
    }
    distinct.keys = reinterpret_cast<std::uint64_t*>(memory);
    distinct.sorted_keys = reinterpret_cast<std::uint64_t*>(memory + wide);
    distinct.num_kept = reinterpret_cast<std::int64_t*>(memory + 2 * wide);
    distinct.scratch = memory + arrays;
    Launch(distinct);
    Note(cudaStreamSynchronize(stream_), "loading kernels");
    Free(memory);
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

void CudaGpu::Launch(const GpuLaunch& launch) {
  // By the alternatives of GpuLaunch.
  static constexpr std::string_view kNames[] = {
      "initialising weights",    "making ids",         "pooling rows", "gathering rows",
      "adding segments of bags", "making row keys",    "sorting ids",  "updating rows",
      "making cache keys",       "sorting cache keys", "fetching rows"};
  static_assert(std::size(kNames) == std::variant_size_v<GpuLaunch>);
  std::visit(
      [&](const auto& one) {
        if (one.empty()) return;
        Use();
        cudaError_t error = cudaSuccess;
        if constexpr (requires { one.scratch_bytes; }) {
          auto bytes = static_cast<std::size_t>(one.scratch_bytes);
          error = Enqueue(one, &bytes, stream_);
        } else {
          error = Enqueue(one, stream_);
        }
        Note(error, kNames[launch.index()]);
      },
      launch);
}

template <typename Sort>
StatusOr<std::int64_t> CudaGpu::ScratchOf(Sort sort, std::string_view what) {
  Use();
  std::size_t bytes = 0;
  sort.scratch = nullptr;
  Note(Enqueue(sort, &bytes, stream_), what);
  NS_RETURN_IF_ERROR(status());
  return static_cast<std::int64_t>(std::max<std::size_t>(bytes, 1));
}

StatusOr<std::int64_t> CudaGpu::ScratchBytes(const SortLaunch& sort) {
  return ScratchOf(sort, "sizing the sort");
}

StatusOr<std::int64_t> CudaGpu::ScratchBytes(const DistinctLaunch& sort) {
  return ScratchOf(sort, "sizing the sort of cache keys");
}

}  // namespace neuroshard::cuda
