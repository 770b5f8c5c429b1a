#include "server/cost/analytic/kernel_bandwidth.h"

namespace neuroshard {

double KernelBandwidth(ComputeKernel kernel, const MemoryBandwidths& memory, double cached_share,
                       bool prefetched) {
  switch (kernel) {
    case ComputeKernel::kDense:
      return 0.5 * memory.device_bytes_per_ms;
    case ComputeKernel::kFused:
    case ComputeKernel::kOffload:
      return memory.device_bytes_per_ms;
    case ComputeKernel::kFusedUvm:
      return memory.host_to_device_bytes_per_ms / 10;
    case ComputeKernel::kFusedUvmCaching:
      if (prefetched) return memory.device_bytes_per_ms;
      return (cached_share * memory.device_bytes_per_ms +
              (1 - cached_share) * memory.host_to_device_bytes_per_ms) /
             10;
    case ComputeKernel::kKeyValue:
      return memory.ssd_bytes_per_ms;
  }
  return 0;
}

}  // namespace neuroshard
