#include <algorithm>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_select.cuh>

#include "kernels/cuda/kernel_launches.h"

namespace neuroshard::cuda {
namespace {

// Entries are counted in 32 bits, for which CUB is tuned; an op has fewer than 2^31.
template <typename Payload>
cudaError_t SortPairs(void* scratch, std::size_t* scratch_bytes, const std::uint32_t* keys,
                      std::uint32_t* sorted_keys, const void* occurrences, void* sorted_occurrences,
                      std::int64_t entries, int key_bits, cudaStream_t stream) {
  return cub::DeviceRadixSort::SortPairs(
      scratch, *scratch_bytes, keys, sorted_keys, static_cast<const Payload*>(occurrences),
      static_cast<Payload*>(sorted_occurrences), static_cast<int>(entries), 0, key_bits, stream);
}

}  // namespace

cudaError_t LaunchSort(void* scratch, std::size_t* scratch_bytes, const std::uint32_t* keys,
                       std::uint32_t* sorted_keys, const void* occurrences,
                       void* sorted_occurrences, bool scaled, std::int64_t entries, int key_bits,
                       cudaStream_t stream) {
  static_assert(sizeof(PlainOccurrence) == 4 && sizeof(ScaledOccurrence) == 8);
  return scaled ? SortPairs<std::uint64_t>(scratch, scratch_bytes, keys, sorted_keys, occurrences,
                                           sorted_occurrences, entries, key_bits, stream)
                : SortPairs<std::uint32_t>(scratch, scratch_bytes, keys, sorted_keys, occurrences,
                                           sorted_occurrences, entries, key_bits, stream);
}

cudaError_t LaunchKeepDistinct(void* scratch, std::size_t* scratch_bytes, std::uint64_t* keys,
                               std::uint64_t* sorted_keys, std::int64_t* num_kept,
                               std::int64_t entries, int key_bits, cudaStream_t stream) {
  std::size_t sort_bytes = *scratch_bytes, keep_bytes = *scratch_bytes;
  if (const cudaError_t error = cub::DeviceRadixSort::SortKeys(
          scratch, sort_bytes, static_cast<const std::uint64_t*>(keys), sorted_keys,
          static_cast<int>(entries), 0, key_bits, stream);
      error != cudaSuccess) {
    return error;
  }
  const cudaError_t error = cub::DeviceSelect::Unique(
      scratch, keep_bytes, static_cast<const std::uint64_t*>(sorted_keys), keys, num_kept,
      static_cast<int>(entries), stream);  // as CUDA 12's takes them
  if (scratch == nullptr) *scratch_bytes = std::max(sort_bytes, keep_bytes);
  return error;
}

}  // namespace neuroshard::cuda
