#include <algorithm>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_select.cuh>

#include "kernels/cuda/kernel_launches.h"

namespace neuroshard::cuda {
namespace {

// Entries are counted in 32 bits, for which CUB is tuned; an op has fewer than 2^31.
template <typename Payload>
cudaError_t SortPairs(const SortLaunch& launch, std::size_t* scratch_bytes, cudaStream_t stream) {
  return cub::DeviceRadixSort::SortPairs(
      launch.scratch, *scratch_bytes, launch.keys, launch.sorted_keys,
      static_cast<const Payload*>(launch.occurrences),
      static_cast<Payload*>(launch.sorted_occurrences), static_cast<int>(launch.entries), 0,
      launch.key_bits, stream);
}

}  // namespace

cudaError_t Enqueue(const SortLaunch& launch, std::size_t* scratch_bytes, cudaStream_t stream) {
  static_assert(sizeof(PlainOccurrence) == 4 && sizeof(ScaledOccurrence) == 8);
  return launch.scaled ? SortPairs<std::uint64_t>(launch, scratch_bytes, stream)
                       : SortPairs<std::uint32_t>(launch, scratch_bytes, stream);
}

cudaError_t Enqueue(const DistinctLaunch& launch, std::size_t* scratch_bytes, cudaStream_t stream) {
  const std::uint64_t* const keys = launch.keys;
  const std::uint64_t* const sorted_keys = launch.sorted_keys;
  const auto entries = static_cast<int>(launch.entries);
  std::size_t sort_bytes = *scratch_bytes, keep_bytes = *scratch_bytes;
  if (const cudaError_t error =
          cub::DeviceRadixSort::SortKeys(launch.scratch, sort_bytes, keys, launch.sorted_keys,
                                         entries, 0, launch.key_bits, stream);
      error != cudaSuccess) {
    return error;
  }
  const cudaError_t error = cub::DeviceSelect::Unique(launch.scratch, keep_bytes, sorted_keys,
                                                      launch.keys, launch.num_kept, entries,
                                                      stream);  // as CUDA 12's takes them
  if (launch.scratch == nullptr) *scratch_bytes = std::max(sort_bytes, keep_bytes);
  return error;
}

}  // namespace neuroshard::cuda
