#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/kernel_launches.h"

namespace neuroshard::cuda {
namespace {

template <typename Payload>
cudaError_t SortPairs(void* scratch, std::size_t* scratch_bytes, const std::uint32_t* keys,
                      std::uint32_t* sorted_keys, const void* occurrences, void* sorted_occurrences,
                      std::int64_t entries, int key_bits, cudaStream_t stream) {
  return cub::DeviceRadixSort::SortPairs(
      scratch, *scratch_bytes, keys, sorted_keys, static_cast<const Payload*>(occurrences),
      static_cast<Payload*>(sorted_occurrences), entries, 0, key_bits, stream);
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

}  // namespace neuroshard::cuda
